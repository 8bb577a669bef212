"""Execution of a `Program`: launches, waves of blocks, the scheduler.

- `launching`, `cooperation`, `block_sampling`: the blocks of a launch, cooperative launches, and sampled blocks.
- `wave`: blocks that run together.
- `scheduler`, `deadline`: the group that runs next, and the time limit.
- `barriers`, `named_barriers`, `mbarriers`: threads that wait.
- `stack`: recursive calls.
- `absent_lanes`: shuffles from lanes that are inactive or have exited.
- `surroundings`: clocks and multiprocessors as kernels read them.
"""

"""Execution of a `Program`: launches, waves of blocks, the scheduler.

- `launching`, `block_sampling`, `unlike_blocks`: the blocks of a launch, cooperative launches, sampled and last blocks.
- `launch_state`, `wave`: the state and the time limit that the waves of a launch share; blocks that run together.
- `scheduler`: the order of groups.
- `endless`: launches that do not end: the state that an endless loop repeats, the faults, and their source lines.
- `barriers`, `named_barriers`, `mbarriers`: threads that wait for each other.
- `convergence`: lanes that wait for their warp at `_sync` operations.
- `stack`: recursive calls.
- `disturbed_wave`: reads that return changed values, as a test of dependence.
- `absent_lanes`: shuffles from lanes that are inactive or have exited.
"""

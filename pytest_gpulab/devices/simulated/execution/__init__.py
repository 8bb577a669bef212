"""Execution of a `Program`: launches, waves of blocks, the scheduler.

- `launching`, `cooperation`, `block_sampling`: the blocks of a launch, cooperative launches, and sampled blocks.
- `wave`: blocks that run together.
- `scheduler`, `deadline`: the group that runs next, and the time limit.
- `barriers`, `named_barriers`: threads that wait.
- `warp`, `absent_lanes`: shuffles, votes, matches, reductions.
"""

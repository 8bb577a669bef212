"""Groups of lanes that share a program counter.

- `lanes`: the threads of a group.
- `group`: how groups diverge and reconverge, with their registers.
- `stalled`: groups that wait for other threads' writes, and proof that a loop makes no progress.
- `progress`: whether a slow launch reaches new code.
"""

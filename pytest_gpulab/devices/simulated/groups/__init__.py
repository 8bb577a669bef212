"""Groups of lanes that share a program counter.

- `lanes`: the threads of a group.
- `group`: how groups diverge, reconverge and wait for other threads' writes, with their registers.
- `cycles`: proof that a loop makes no progress.
- `progress`: whether a slow launch reaches new code.
"""

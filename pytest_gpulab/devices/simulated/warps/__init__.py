"""Operations of whole warps.

- `collectives`: shuffles, votes, matches, reductions.
- `tensor_cores`: matrix instructions.
"""

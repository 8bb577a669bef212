"""Exact race detection in bounded memory.

- `racecheck`: within a block.
- `inter_block`, `pairing`: between blocks, and pairs that only fences can order.
- `thinning`, `settling`, `distinct`: long sequences of accesses, shortened without losing races.
"""

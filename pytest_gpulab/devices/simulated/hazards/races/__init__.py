"""Races, found exactly and in bounded memory.

- `racecheck`: within a block.
- `inter_block`, `pairing`: between blocks, and pairs that only fences can order.
- `repeats`, `thinning`, `settling`, `distinct`: long recordings made short without losing races.
"""

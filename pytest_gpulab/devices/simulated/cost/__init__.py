"""The cost model: from counts to an estimated time.

- `demands`, `critical_path`, `pipes`: what a launch asks of each unit of the GPU.
- `model`: the estimated time.
- `bottleneck`, `line_shares`: the limiting unit, and each source line's share.
"""

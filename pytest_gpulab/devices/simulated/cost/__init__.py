"""The cost model: from counts to an estimated time.

- `demands`, `critical_path`, `machine_path`, `pipes`: the work of a launch for each unit of the GPU.
- `chains`, `fences`: waits for other blocks and at memory fences.
- `model`: the estimated time.
- `bottleneck`, `line_shares`: the limiting unit, and each source line's share.
"""

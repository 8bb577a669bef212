"""Traces: the accesses, barriers and lines of some blocks, recorded for figures.

- `recorder`: a hazard checker that records what it is shown, and the executed lines.
"""

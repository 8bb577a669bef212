"""Run a `Program`: groups of lanes over its blocks, with memories, barriers and counters."""

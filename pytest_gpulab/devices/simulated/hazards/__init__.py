"""Hazard checks: races, uninitialised reads.

- `checker`: the interface for execution.
- `accesses`: the accesses and synchronisations of a run.
- `races`: races within a block and between blocks.
- `sweep`, `classes`: exact comparison of accesses in order, and accesses with the same order relations.
- `alike_blocks`: blocks with the same synchronisations.
- `fences`, `vector_clocks`: the order that fences, barriers and warp syncs establish.
- `polls`: strong accesses that repeat earlier ones, and compare-and-swaps that fail over and over.
- `initcheck`: reads of memory that was never written.
- `reporting`: hazards merged per source line.
"""

"""Analyses of a kernel's text, for the scheduler, the hazard checks and the cost model.

- `waits`: loops that wait for other threads, or for a phase of an mbarrier.
- `counted_loops`, `float_counters`: iterations that are left of loops with a counter.
- `loads`: loads that are checked by `atomicCAS`, decide a spin loop, or are only copied.
- `retries`: loops that update a value by `atomicCAS`.
- `data_flow`: additions of data, and reads with values that flow into memory.
- `regions`: code that the assembler may reorder.
"""

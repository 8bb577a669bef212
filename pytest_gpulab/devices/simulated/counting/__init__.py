"""Hardware counters of a launch.

- `counters`: executions per basic block, memory traffic per instruction.
- `requests`, `banks`, `footprint`, `joining`, `spread`: requests, bank conflicts, sectors, merged accesses, barriers.
- `retries`: further trips through loops that repeat a compare-and-swap.
- `contention`, `paths`, `workload`: further input of the cost model.
- `rules`: issued instructions of kernels without readable machine code.
- `accounts`: figures with Nsight Compute's names.
"""

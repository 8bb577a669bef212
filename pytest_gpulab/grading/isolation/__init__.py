"""Isolation: submissions are graded in worker processes that can be killed.

- `remote`: a grader for the pytest process that asks a worker.
- `worker`, `worker_process`: the worker, and its parent's view of it.
- `fork_server`, `forked`: workers by fork from a process that has loaded everything.
- `cross_check`: the simulated GPU's verdict on what a real GPU grades.
"""

"""Isolation: worker processes, which can be killed, grade the submissions.

- `remote`: the grader of the pytest process; it sends requests to a worker.
- `worker`, `worker_process`: the worker, and its parent's view of it.
- `fork_server`: a process that has loaded all modules and forks workers.
- `cross_check`: grades on the simulated GPU as well what a real GPU grades.
"""

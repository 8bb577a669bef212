"""Where grading jobs run.

- `processes`: processes on this machine.
- `gpus`: the GPUs of this machine.
- `dask_cluster`, `dask_worker`: a Dask cluster.
- `worker`, `cores`: start of a worker process, and usable cores.
"""

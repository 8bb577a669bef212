"""Where grading jobs run.

- `processes`: processes on this machine.
- `dask_cluster`, `dask_worker`: a Dask cluster.
- `worker`, `cores`: a worker process for the simulated GPU, and usable cores.
"""

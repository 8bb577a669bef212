"""Submissions that are whole programs: they run natively in a sandbox, their kernels on the simulated GPU.

- `grader`: grades one submission.
- `runs`: the build and the runs of a submission, each made once.
- `judging`: findings of a run: its end, output and launches.
"""

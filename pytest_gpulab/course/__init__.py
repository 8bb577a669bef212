"""A class: its submissions, and grading them in many processes, resumably.

- `intake`: what was handed in.
- `jobs`: a grading job as plain data.
- `schedule`, `progress`: the jobs of a run.
- `store`: finished grades in a file.
- `executors`: where jobs run.
"""

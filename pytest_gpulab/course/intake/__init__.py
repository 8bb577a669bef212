"""Intake: from the files of a class to its submissions.

- `archive`, `entries`: ZIP exports and folders.
- `submissions`: the file that counts per student and exercise.
- `roster`: students, ids and their folders.
- `similarity`: near-identical sources.
"""

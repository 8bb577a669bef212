"""Intake: from the files of a class to its submissions.

- `archive`, `entries`: ZIP exports and folders.
- `exported_names`: names of files in learning platforms' exports.
- `submissions`, `student_files`: the file that counts per student and exercise.
- `roster`, `adjustments`: students, ids and their folders; points that an instructor adds.
- `tables`: tables in CSV files.
- `similarity`: near-identical sources.
"""

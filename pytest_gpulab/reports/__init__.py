"""Reports: grades -> text and files. Yields lines, prints nothing; no pytest in it.

- `gradebook`: the grades of a run.
- `students`, `standings`, `class_statistics`: rows per student, points, and figures of a class.
- `visibility`: what students may see of a grade.
- `formats`, `context`: the report formats and their input.
- `terminal`, `files`, `pages`, `instructor`: the reports.
"""

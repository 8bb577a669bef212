"""Tables and findings for the terminal.

- `sections`: all sections of a run.
- `table`, `class_summary`, `bandwidth`, `hardware`: the tables.
- `reasons`, `check_text`, `annotated`: findings, single checks and listings as text.
"""

"""Tables and findings for the terminal.

- `sections`: all sections of a run.
- `table`, `class_summary`, `bandwidth`, `hardware`: the tables.
- `sweep`: the table of a sweep.
- `program`: the report of a whole program's run.
- `explained`: a submission on one small input.
- `text`: text in the width of a terminal.
- `reasons`, `check_text`, `annotated`: findings, single checks and listings as text.
"""

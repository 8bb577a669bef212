"""Report files for programs: `--gpulab-report=FORMAT:PATH`.

- `json_report`, `spreadsheet`, `ctrf`: JSON, CSV, Common Test Report Format.
- `gradescope`, `classroom50`, `prairielearn`, `github`: results for autograders.
- `calibration`: the calibration file of a graded ladder.
"""

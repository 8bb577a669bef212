"""Grading: submission + exercise + device -> grade. No pytest in it.

- `grade`: the result, as plain data.
- `grader`, `figure_checks`, `smallest_failing`: grades one submission; its figures; its smallest failing input.
- `checks`, `catalogue`, `expected`: an exercise's checks, the exercises folder, and expected verdicts.
- `findings`, `program_findings`: the words and hints of findings, and those of a whole program's run.
- `plans`, `compilation`, `correctness`, `diagnosis`: replays of plans, builds, comparisons, wrong outputs.
- `usage`, `speed`, `calibration`: `uses` and `speedup` checks and what they require.
- `programs`: submissions that are whole programs.
- `explanation`: figures of the threads of a block, as data.
- `isolation`, `time_limits`: worker processes and the limits of kernels.
- `tools`, `counters`: NVIDIA's tools, and hardware counters as data.
- `annotate`, `listing`, `program_listing`: annotated source listings, and that of a whole program.
"""

"""Exercises before a student meets them: checks, and new ones from templates.

- `defects`: a defect of an exercise, and the report of all of them.
- `check`: all checks of an exercise, in order.
- `plans`: plans against the sources: kernels, parameters, buffers.
- `data`: inputs, references and tolerances.
- `usage`: bounds of `uses` checks that an idle kernel passes.
- `gradings`: grades of the baselines, the skeleton and the solutions.
- `mutants`, `mutator`: mutants of the solutions that pass all checks; small mistakes in a kernel.
- `programs`: the checks of an exercise that asks for a whole program.
- `readme`: the README's points table.
- `scaffold`, `templates/`: a new exercise, and a new course with a copy of the shipped exercises and solutions.
- `handout`, `visible`: the students' copy of a course; an exercise's source without hidden cases.
"""

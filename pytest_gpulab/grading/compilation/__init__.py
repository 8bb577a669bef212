"""Compilation of a submission: includes, variants, the kernels' names and signatures, compiler messages.

- `builds`: compiles each variant once.
- `includes`: the headers that a submission may include.
- `signature`, `parameter_types`: compares kernels with the plan's launches.
- `tunable_macros`: tunables that are given as `#define`.
- `missing_headers`: CUDA headers that the machine lacks.
- `compile_errors`, `compile_notes`, `source_quotes`: compiler messages, notes and source lines for findings.
"""

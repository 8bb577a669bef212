"""Compilation of a submission: includes, variants, the kernels' names and signatures, compiler messages.

- `builds`: compiles each variant once.
- `includes`: the text of a submission, and the headers that it may include.
- `signature`, `parameter_types`: compares kernels and tunables with the plan's launches.
- `deduced_instances`: instances of kernel templates for the launches.
- `swept_source`: a file with other values of its tunables.
- `missing_headers`: CUDA headers that the machine lacks.
- `compile_errors`, `language_hints`, `host_uses`: explanations of compiler messages.
- `compile_notes`, `source_quotes`: notes, and source lines for findings.
"""

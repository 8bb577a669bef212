"""The text of a CUDA C++ file, parsed as far as the grader needs it.

- `tokens`, `declarations`: tokens, macros, the heads of declarations, and declarations at namespace scope.
- `host_code`, `host_overloads`, `launched_instances`: blanks host code; lines and columns stay.
- `host_constants`, `lambda_marks`, `assembly`: constructs that one compiler refuses and the other accepts.
- `names`: names of kernels and variables from mangled symbols.
"""

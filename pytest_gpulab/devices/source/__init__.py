"""The text of a CUDA C++ file, parsed as far as the grader needs it.

- `tokens`, `declarations`: tokens, macros, the heads of declarations, and declarations at namespace scope.
- `host_code`, `host_overloads`, `launched_instances`: blanks host code; lines and columns stay.
- `host_constants`, `kernel_calls`, `lambda_marks`, `assembly`: code that one compiler refuses, not the other.
- `names`: names of kernels and variables from mangled symbols.
"""

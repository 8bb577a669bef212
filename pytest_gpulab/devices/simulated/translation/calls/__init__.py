"""Calls of device functions.

- `inline`, `passing`: inlining of functions and of their parameters.
- `recursion`: recursive functions, with a stack per thread.
"""

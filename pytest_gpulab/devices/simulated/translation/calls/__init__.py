"""Calls of device functions.

- `inline`, `passing`: inlines functions and their parameters.
- `recursion`: recursive functions, with a stack per thread.
"""

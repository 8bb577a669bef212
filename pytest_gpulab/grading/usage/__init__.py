"""Usage checks: whether a submission uses the concept, by the counters of the simulated GPU.

- `checks`: compares the counters with the exercise's bounds.
- `second_size`: a second problem size that a submission cannot know.
- `constant_reads`: the share of constant memory reads that the outputs depend on.
"""

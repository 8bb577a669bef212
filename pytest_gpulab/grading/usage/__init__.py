"""Usage checks: whether a submission uses the concept, by the counters of the simulated GPU.

- `checks`: compares the counters with the exercise's bounds.
- `figures_ahead`: a second process that counts and estimates at the same time.
- `second_size`: a second problem size that a submission cannot know.
- `used_reads`: the share of reads from constant or shared memory that the outputs depend on.
"""

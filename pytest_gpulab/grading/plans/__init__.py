"""Plans: how an exercise runs at one size, as data, and how a device replays it.

- `prepare`: plan, inputs and expected outputs of a case.
- `replay`: runs a plan on a device.
- `index_factors`: the elements that threads take by an index with certain factors.
- `parameter_names`: launches and arrays in the student's names.
"""

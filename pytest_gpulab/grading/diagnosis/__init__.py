"""Diagnosis of wrong outputs: what the wrong elements have in common, and a likely cause.

- `compare`: outputs against the expected ones, and the verdicts on replays and cases.
- `wrong_output`: the finding of an output with wrong elements.
- `error_location`, `value_patterns`, `arithmetic_patterns`, `scan_patterns`, `missing_terms`, `counter_patterns`:
  patterns in positions, in values, in their relation to the expected ones, in those of prefix sums, in a single result,
  and in counters.
- `causes`: the usual causes of wrong elements, by their positions.
- `patterns`, `coincidence`: a pattern as data, with the blocks' share of an array, and its chance probability.
- `simple_inputs`: values to try for the smallest failing input, and their notations.
- `explain`, `whole_array_reads`: causes from hazards and other cases.
"""

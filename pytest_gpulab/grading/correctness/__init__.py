"""Correctness checks: replay the plan of each case, compare the outputs and collect the hazards.

- `cases`: the runs of each case, and their verdict.
- `ahead`: a second process that works at the same time.
- `blame`: failures that the exercise's own baseline shares: then the exercise is at fault.
- `safety`: the `safe` checks, from the hazards of all runs.
- `sizes`: sizes to try for the smallest failing input, and the rule of those that fail.
- `shrinking`, `smallest_inputs`: the smallest failing inputs, searched at once or on request.
- `relation`: the elements that a wrong result adds up.
- `trials`, `requests`: runs at other sizes and on other inputs, chosen by the search or by a user.
- `baselines`: outputs of the baselines, compared before their times count.
- `checked_launches`: launches that are counted or costed; their outputs are compared, too.
"""

"""From a kernel in PTX to a `Program`: a Python function for each basic block."""

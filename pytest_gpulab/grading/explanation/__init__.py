"""Explanation: the data of figures that show the threads of one block at work on a small input.

- `tracing`: runs a trial once more with a trace.
- `rows`: the trace as rows of cells with arrows.
- `loops`: values of loop variables, from the source.
- `warps`: active lanes per line, banks and sectors of a warp's accesses.
- `departure`: the first wrong values, compared with a right run.
- `stops`: where threads stop: missed barriers, the fault that ends the launch.
- `marks`: what is wrong, at elements of rows.
- `drawing`: chooses the input and the block size of a figure.
- `figure`: everything that a figure shows of a launch.
"""

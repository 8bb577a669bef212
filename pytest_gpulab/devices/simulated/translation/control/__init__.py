"""Control flow of an inlined kernel: basic blocks in scheduling order, and liveness.

- `graph`: kinds of statements, basic blocks and the graph as data, live registers, and results that are never read.
- `building`: from statements to the graph.
"""

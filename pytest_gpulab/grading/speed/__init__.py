"""Speed checks: estimated on the simulated GPU, measured on a real one.

- `costs`: the protocol of `estimate` (costs on a device that estimates) and of `measured` (on one that can time).
- `verdict`: the verdict on a speedup, its findings, and a question per kind of bottleneck.
- `estimate`, `measured`: the two implementations.
- `benchmark`, `targets`, `buffers`, `contents`, `mixing`: interleaved timing of two targets on changing inputs.
- `validation`, `sampled_comparison`: checks the outputs of timed runs.
- `interference`, `statistics`: disturbed samples, and the verdict on a ratio.
- `reference_time`: the time of the CPU reference.
"""

"""Speed checks: estimated on the simulated GPU, measured on a real one.

- `estimate`: costs of a submission and its baseline on a device that estimates.
- `measured`: the same on a device that can time.
- `benchmark`, `targets`, `contents`, `mixing`: interleaved timing of two targets on changing inputs.
- `validation`, `sampled_comparison`: checks the outputs of timed runs.
- `interference`, `statistics`: disturbed samples, and the verdict on a ratio.
- `reference_time`, `advice`: the CPU's time, and a question per kind of bottleneck.
"""

"""Calibration: speed thresholds for a device, from a graded ladder of solutions.

- `choice`: the calibration that applies to the device.
- `file`: the calibration file.
- `fit`: thresholds from the speeds of a ladder.
"""

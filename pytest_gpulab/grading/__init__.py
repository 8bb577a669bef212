"""Submission + Exercise + Device -> Grade; no pytest in it."""

"""Plugins of others that the pytest in a test runs without: together they would take half of a short run's time."""

WITHOUT = tuple(f"-pno:{name}" for name in ("anyio", "benchmark", "hypothesispytest"))

"""Measures aioacl on the simulator, beside other ways to wait for the same work: `python -m benchmarks`."""

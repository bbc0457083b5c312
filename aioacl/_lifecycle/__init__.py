"""The lifecycle of a device: admission, leases, jobs, and the procedures that open, close and reset it."""

"""The life of a device: who may enter, leases, jobs, and what opens, closes and resets it."""

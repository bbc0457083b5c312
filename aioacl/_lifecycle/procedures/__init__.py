"""The procedures that open, close and reset a device. Each runs once, on a thread of its own."""

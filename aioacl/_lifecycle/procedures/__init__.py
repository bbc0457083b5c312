"""What opens, closes and resets a device: each runs once, on a thread of its own."""

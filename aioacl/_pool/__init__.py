"""One batcher on all devices."""

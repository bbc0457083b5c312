"""Objects on a device: streams, events and memory; and the awaitables that wait for their work."""

"""What lives on a device: streams, events, memory, and what is awaited."""

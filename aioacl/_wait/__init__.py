"""Waiting: ports, which deliver completions to event loops and threads; and the two threads of a device."""

"""Waiting: completions for event loops and threads, and the threads that each device has."""

"""A trace of what a process did: for Perfetto, and as a page for a browser."""

"""Offline models: loading, calls, and what follows a reset."""

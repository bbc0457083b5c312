"""Batches: items that arrive together share one execution of a model. See `core` for the rules."""

"""Stores frames in the memory of an NPU, and reads them back."""

from framestore.store import FrameLost, FrameStore, open_store

__all__ = ["FrameLost", "FrameStore", "open_store"]

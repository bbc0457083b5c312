"""Keeps frames in the memory of an NPU, and gives them back."""

from framestore.store import FrameLost, FrameStore, open_store

__all__ = ["FrameLost", "FrameStore", "open_store"]

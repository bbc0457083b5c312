"""The namespace of ACL's functions. What it has, with types, is in the stub beside this file."""

from __future__ import annotations

from aioacl.lowlevel._calls import Namespace


class Functions(Namespace):
    """ACL's functions as methods with the C names of their parameters.

    `lowlevel.functions` calls them as they are: nothing keeps a reset from running into them, and the calling thread's
    own context is the one they meet. What `lowlevel.on(device)` returns passes the device's gate.
    """

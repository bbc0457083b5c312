"""Imports modules from the file of the compiled module `_acl`, which has several modules."""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader


def load_part(name: str) -> None:
    """Imports the module of this name. Raises ImportError if it refuses the import, or if there is no file."""
    file = find_spec("aioacl._acl")
    if file is None or file.origin is None:
        raise ImportError("expected the compiled module aioacl._acl, found none; build and install aioacl")
    loader = ExtensionFileLoader(name, file.origin)
    spec = spec_from_loader(name, loader)
    assert spec is not None, "a loader was given"
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module

"""The module `acl.mdl` has the names of `aioacl.pyacl.mdl`."""

from aioacl.pyacl.mdl import *

"""The module `acl.rt` has the names of `aioacl.pyacl.rt`."""

from aioacl.pyacl.rt import *

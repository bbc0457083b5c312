"""The module `acl.util` has the names of `aioacl.pyacl.util`."""

from aioacl.pyacl.util import *

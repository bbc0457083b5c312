"""The module `acl.op` has the names of `aioacl.pyacl.op`."""

from aioacl.pyacl.op import *

"""The module `acl.prof` has the names of `aioacl.pyacl.prof`."""

from aioacl.pyacl.prof import *

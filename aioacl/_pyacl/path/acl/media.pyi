"""The module `acl.media` has the names of `aioacl.pyacl.media`."""

from aioacl.pyacl.media import *

"""CANN's Python module `acl`, made by aioacl. This folder is on the path only if the program asks for it."""

from aioacl._pyacl.modules import install

install(__name__)  # from here on, `acl` is the module that this has made

"""CANN's Python module `acl` as a part of aioacl: the same objects as `import acl` after `python -m aioacl pyacl`.

The import loads the ACL library, as `import acl` does, and raises ImportError if there is none.
"""

from aioacl._pyacl.modules import install

install(__name__)  # from here on, `aioacl.pyacl` is the module `acl`

"""The module `acl` has the names of `aioacl.pyacl`."""

from aioacl.pyacl import *
from aioacl.pyacl import rt as rt
from aioacl.pyacl import mdl as mdl
from aioacl.pyacl import util as util
from aioacl.pyacl import media as media
from aioacl.pyacl import prof as prof
from aioacl.pyacl import op as op

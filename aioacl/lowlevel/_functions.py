"""The namespace of ACL's functions. The stub beside this file lists them with their types."""

from __future__ import annotations

from aioacl.lowlevel._calls import Namespace


class Functions(Namespace):
    """ACL's functions as methods with the C names of their parameters.

    `lowlevel.functions` calls them directly: a reset may happen during a call, and the call uses the context of the
    calling thread. The calls of `lowlevel.on(device)` pass the device's gate. Each call checks its arguments first.

    A function that returns an aclError returns None for the code 0, and raises AclError for every other code. Only
    aclrtPeekAtLastError and aclrtGetLastError return their code instead. Other functions return their value.

    Raises:
        AclError: ACL returned an error code; the subclass depends on the code.
        NotSupported: the library lacks the function.
        ParameterError: an argument does not fit its parameter, or the function sets, resets or stops a device.
    """

"""Tensors of torch_npu as producers of DLPack tensors.

torch's own `__dlpack_device__` raises ValueError for such a tensor, and its `__dlpack__` ignores `stream`. So aioacl
reads the device from the tensor, and itself makes the stream wait for the work of torch. aioacl never imports torch: a
program that has such a tensor has imported it already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._handles.dlpack import EXTENSION, wait_outside

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager

# The name that torch_npu gives to its devices, and torch's own name of a device that an extension adds.
DEVICE_TYPES: Final = ("npu", "privateuseone")


def is_npu_tensor(thing: object) -> bool:
    """Whether the object is a tensor of torch on a device that an extension of torch added."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    kind = getattr(getattr(thing, "device", None), "type", None)
    return isinstance(tensor, type) and isinstance(thing, tensor) and kind in DEVICE_TYPES


class NpuTensor:
    """A tensor of torch_npu with working DLPack methods. It keeps the event for which a stream waits."""

    def __init__(self, manager: Manager, tensor: Any) -> None:
        self._manager = manager
        self._tensor = tensor
        self._event: Any = None

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return EXTENSION, self._tensor.device.index

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        capsule = self._tensor.__dlpack__(**options)
        if stream is not None and stream != -1:
            self._make_wait(stream)
        return capsule

    def _make_wait(self, stream: int) -> None:
        """Makes a native stream wait for the present end of torch's current stream (aclrtStreamWaitEvent)."""
        npu = getattr(sys.modules.get("torch_npu"), "npu", None)
        if npu is None:
            raise ParameterError(
                f"expected a tensor of torch_npu, got one on a device of the type {self._tensor.device.type!r} "
                "without torch_npu",
                hint="Wait for the producer's work, and call from_dlpack without stream=.",
            )
        current = npu.current_stream(self._manager.index)
        self._event = npu.Event()
        self._event.record(current)
        # torch queues the record on the host. The read of `npu_stream` waits until this queue is empty. Before that,
        # the runtime would take the event for an event that was never recorded, and would not wait.
        if current.npu_stream != stream:
            wait_for_other_code(self._manager, stream, self._event.npu_event)


def wait_for_other_code(manager: Manager, stream: int, event: int) -> None:
    """Makes a native stream wait on the device for an event of other code (aclrtStreamWaitEvent)."""
    held = manager.admission.may_enqueue_while_draining()
    wait_outside(manager, manager.generation, stream, ffi.cast("aclrtEvent", event), held=held)

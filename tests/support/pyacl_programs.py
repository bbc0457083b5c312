"""Random programs of calls of `acl`: handles freed twice, foreign handles, wrong order, resets between.

Half of the calls that destroy something are made again at once. Half of the programs go on after `acl.finalize`, and
every 50th in a forked child, where each call must return a code too.

    python -m tests.support.pyacl_programs SEED COUNT

Each call must return a result of the form that its row declares. A crash ends the process, so the caller sees the seed
of the program that was printed last. Host addresses come from buffers that live as long as the process.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
import warnings
from typing import Any, Final

import aioacl.pyacl as acl
from aioacl import AclWarning
from aioacl._base.paths import DATA
from aioacl._pyacl.table import Field, Row, rows

CALLS: Final = 40
CALLS_AFTER: Final = 10
HOST_BYTES: Final = 4096
# `util` reads any address by design. The others wait for something that no random program does, or end the process.
LEFT_OUT: Final = frozenset(
    {
        "acl.rt.value_wait",
        "acl.rt.wait_and_reset_notify",
        "acl.rt.process_report",
        "acl.rt.launch_callback",
        "acl.rt.set_exception_info_callback",
        "acl.app_log",
    }
)
# Parameters that are addresses of memory. All other pointers are handles.
MEMORY: Final = frozenset(
    [
        "data",
        "dst",
        "src",
        "devPtr",
        "hostPtr",
        "ptr",
        "virPtr",
        "expectPtr",
        "model",
        "workPtr",
        "weightPtr",
        "outputAddr",
        "param",
        "argsData",
        "userHostMem",
        "devAddr",
        "srcAddr",
        "dstAddr",
        "pHost",
        "inputQ",
        "outputQ",
        "config",
        "reserve",
    ]
)
ENDS: Final = ("destroy_", "free", "unload", "reset_device")
GARBAGE: Final = (0, 1, 8, 0xDEAD0000, (1 << 64) - 8)
HOST: Final = [bytes(HOST_BYTES) for _ in range(3)]
HOST_ADDRESSES: Final = [acl.util.bytes_to_ptr(each) for each in HOST]
ROWS: Final = [row for row in rows() if row.c_name and row.module != "util" and row.full_name not in LEFT_OUT]
# Half of the calls are of the functions that programs use most, so that many of them succeed.
USUAL: Final = [
    row
    for row in ROWS
    if row.name
    in [
        "set_device",
        "reset_device",
        "reset_device_force",
        "create_context",
        "set_context",
        "destroy_context",
        "create_stream",
        "destroy_stream",
        "synchronize_stream",
        "malloc",
        "free",
        "malloc_host",
        "free_host",
        "memcpy",
        "memcpy_async",
        "memset",
        "memset_async",
        "create_event",
        "record_event",
        "stream_wait_event",
        "destroy_event",
        "load_from_file",
        "unload",
        "create_desc",
        "get_desc",
        "destroy_desc",
        "get_num_inputs",
        "get_input_dims",
        "get_output_size_by_index",
        "create_dataset",
        "destroy_dataset",
        "create_data_buffer",
        "destroy_data_buffer",
        "add_dataset_buffer",
        "get_dataset_buffer",
        "execute",
        "execute_async",
        "set_dynamic_batch_size",
        "create_tensor_desc",
        "destroy_tensor_desc",
        "set_dataset_tensor_desc",
        "init",
        "finalize",
    ]
]


class Program:
    """One random program. It remembers what its calls have returned, also after the program has freed it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._memory = [0, *HOST_ADDRESSES]
        self._handles: list[int] = []
        self._models = [0, 1, 7]

    def run(self) -> None:
        """Makes the calls, and checks the form of each result."""
        self._call_by_name("init")
        self._call_by_name("rt.set_device", 0)
        self._calls(CALLS)
        if self._seed % 50 == 0:
            self._in_a_child()
        if self._seed % 2:
            acl.finalize()
            self._calls(CALLS_AFTER)
        for index in range(2):
            acl.rt.reset_device_force(index)
        acl.finalize()

    def _calls(self, count: int) -> None:
        for _ in range(count):
            row = self._random.choice(self._random.choice([ROWS, USUAL]))
            arguments = [self._argument(row, each) for each in row.arguments]
            if row.name == "set_config_opt" and arguments[1] == acl.ACL_MDL_PATH_PTR:
                arguments[2] = "a path"
            self._call(row, arguments)
            if row.name.startswith(ENDS) and self._random.random() < 0.5:
                self._call(row, arguments)

    def _in_a_child(self) -> None:
        """Makes calls in a forked child, where ACL cannot be used."""
        child = os.fork()
        if not child:
            try:
                self._calls(CALLS_AFTER)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            raise AssertionError(f"the child ended with {status}")

    def _call_by_name(self, name: str, *arguments: Any) -> None:
        row = next(each for each in ROWS if each.full_name == f"acl.{name}")
        self._call(row, list(arguments))

    def _call(self, row: Row, arguments: list[Any]) -> None:
        module = acl if row.module == "acl" else getattr(acl, row.module)
        result = getattr(module, row.name)(*arguments)
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(row.results) + row.code or (row.code and type(values[-1]) is not int):
            raise AssertionError(f"{row.full_name}{arguments} returned {result!r}")
        for each, value in zip(row.results, values, strict=False):
            self._note(row, each, value)

    def _note(self, row: Row, result: Field, value: Any) -> None:
        if result.kind == "pointer" and value:
            (self._memory if "malloc" in row.name or "mem" in row.name else self._handles).append(value)
        elif result.name == "modelId":
            self._models.append(value)

    def _argument(self, row: Row, field: Field) -> Any:
        kind, choose = field.kind, self._random.choice
        if kind == "pointer":
            if field.name in MEMORY or row.name == "set_tensor_const":
                return choose(self._memory)
            return choose([*GARBAGE, *self._handles[-6:], *self._handles[-6:], *self._memory[-2:]])
        if kind == "uint" and field.name in ("modelId", "bundleId"):
            return choose(self._models)
        if kind == "text":
            return choose(["", "x", str(DATA / "digits.om"), "ascend_mbatch_shape_data"])
        if kind in ("size", "uint", "int", "long"):
            return self._number(row, kind)
        others: dict[str, Any] = {
            "float": 0.5,
            "list": choose([[], [[1, 2]]]) if "range" in row.name else choose([[], [1], [-1, 4]]),
            "dict": {"dims": [1], "dimCount": 1, "location": {}},
            "object": choose([0, 1, 9]),
        }
        return others[kind]

    def _number(self, row: Row, kind: str) -> int:
        if kind == "size" and "malloc" in row.name:
            return self._random.choice([0, 1, 64, 4096, 1 << 20, 1 << 50])
        most = 64 if kind == "size" else 4
        numbers = [0, 1, 2, most]
        return self._random.choice([*numbers, -1] if kind in ("int", "long") else numbers)


def main(seed: int, count: int) -> None:
    """Runs the programs."""
    warnings.simplefilter("ignore", AclWarning)
    warnings.simplefilter("ignore", DeprecationWarning)  # a fork with several threads
    for number in range(seed, seed + count):
        print(number, flush=True)
        Program(number).run()
    print("done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

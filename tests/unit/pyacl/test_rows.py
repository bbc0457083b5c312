"""Every row of the table of pyACL's functions: right arguments, too few, wrong types, an error code, the GIL."""

from __future__ import annotations

import re
import shutil
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import build_pyacl
from aioacl import AclWarning, simulator
from aioacl._base.late import late
from aioacl._pyacl.structures import read
from aioacl._pyacl.table import FOLDER, STRUCTURES, Row, parse, rows
from tests.kit import until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import aioacl.pyacl as acl
else:
    acl = late("aioacl.pyacl")  # the import loads the library, which the session does first

UNSUPPORTED = 200006
INJECTED = 507011
ROWS = rows()
BY_TABLE = [row for row in ROWS if row.how == "table"]
WITH_C = [row for row in ROWS if row.c_name]
# A call of these changes the whole process; tests of their own call them.
OF_PROCESS = {"acl.init", "acl.finalize", "acl.finalize_reference"}
SAMPLES: dict[str, Any] = {
    "pointer": 0, "size": 0, "uint": 0, "int": 0, "long": 0, "float": 0.0, "text": "", "bytes": b"", "list": [],
    "tuple": (), "callable": print, "object": 0, "array": None,
}  # fmt: skip
DICTS: dict[str, Any] = {
    "dims": {"dims": [], "dimCount": 0},
    "prop": {"location": {}},
    "value": {},
    "cfg": {},
}
WRONG: dict[str, Any] = {
    "pointer": "0", "size": None, "uint": 1.5, "int": "0", "long": [], "float": "x", "text": 3, "bytes": "x",
    "list": (), "tuple": [], "dict": [], "callable": 1,
}  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "pointer": (int,), "size": (int,), "uint": (int,), "int": (int,), "long": (int,), "float": (float,),
    "text": (str, type(None)), "list": (list, type(None)), "dict": (dict,), "given": (int,), "none": (type(None),),
    "unsupported": (int,), "object": (object,), "bytes": (bytes,),
}  # fmt: skip


def function(row: Row) -> Callable[..., Any]:
    module = acl if row.module == "acl" else getattr(acl, row.module)
    found: Callable[..., Any] = getattr(module, row.name)
    return found


def samples(row: Row) -> list[Any]:
    return [DICTS[each.name] if each.kind == "dict" else SAMPLES[each.kind] for each in row.arguments]


def form_is_right(row: Row, result: Any) -> bool:
    """Returns whether a result has the form that the row declares."""
    kinds = [each.kind for each in row.results]
    if not row.code:
        return isinstance(result, TYPES[kinds[0]]) if len(kinds) == 1 else len(result) == len(kinds)
    if not kinds:
        return type(result) is int
    *values, code = result
    fits = [
        isinstance(value, dict | None) if kind in STRUCTURES else isinstance(value, TYPES[kind])
        for kind, value in zip(kinds, values, strict=True)
    ]
    return type(code) is int and all(fits)


def wrong(of: list[Row], check: Callable[[Row], object]) -> list[str]:
    """Returns the names of the rows for which the check is false."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AclWarning)
        return [row.full_name for row in of if not check(row)]


def undo(row: Row, result: Any) -> None:
    """Destroys what a call has made, and undoes what it has set."""
    made = result[0] if isinstance(result, tuple) else result
    if row.full_name == "acl.rt.set_device":
        acl.rt.reset_device(0)
    elif "create_" in row.name and made and made != INJECTED:
        module = acl if row.module == "acl" else getattr(acl, row.module)
        getattr(module, row.name.replace("create_", "destroy_"))(made)


def called(of: list[Row]) -> list[Row]:
    return [row for row in of if row.full_name not in OF_PROCESS]


@pytest.fixture(autouse=True)
def _misuse_is_expected() -> Iterator[None]:
    """The calls of these tests are wrong on purpose."""
    yield
    simulator.forget()


# --- the calls ----------------------------------------------------------------------------------------------------


def test_call_with_right_types_reaches_c_once_and_returns_the_declared_form() -> None:
    def check(row: Row) -> bool:
        before = simulator.calls(row.c_name)
        result = function(row)(*samples(row))
        reached = simulator.calls(row.c_name) == before + 1
        undo(row, result)
        return reached and form_is_right(row, result)

    own = {"acl.get_recent_err_msg"}  # aioacl keeps the text of the thread's last error
    assert wrong([row for row in called(WITH_C) if row.full_name not in own], check) == []


def test_row_without_implementation_returns_unsupported_in_its_form_and_warns_once() -> None:
    def check(row: Row) -> bool:
        result = function(row)(*samples(row))
        code = result[-1] if isinstance(result, tuple) else result
        return form_is_right(row, result) and (not row.code or code == UNSUPPORTED)

    assert wrong([row for row in ROWS if row.how == "unsupported"], check) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert acl.op.execute_with_handle(0, [], [], 0) == UNSUPPORTED  # it has warned above


def test_first_call_of_an_unsupported_function_warns_with_its_name_and_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioacl._pyacl.calls._warned", set())
    with pytest.warns(AclWarning, match=r"acl\.op\.create_attr returns 200006") as caught:
        assert acl.op.create_attr() == 0
    assert caught[0].filename == __file__


def test_too_few_and_too_many_arguments_raise_type_error() -> None:
    def check(row: Row) -> bool:
        given = samples(row)
        required = sum(not each.optional for each in row.arguments)
        calls = [[*given, 0]] + ([given[: required - 1]] if required else [])
        for arguments in calls:
            with pytest.raises(TypeError, match="argument"):
                function(row)(*arguments)
        return True

    assert wrong(list(ROWS), check) == []


def test_84_each_argument_of_the_wrong_type_raises_type_error_with_its_name() -> None:
    def check(row: Row) -> bool:
        for index, each in enumerate(row.arguments):
            if each.kind in WRONG:
                arguments = samples(row)
                arguments[index] = WRONG[each.kind]
                with pytest.raises(TypeError, match=rf"expected {each.name} to be"):
                    function(row)(*arguments)
        return True

    assert wrong(list(ROWS), check) == []


def test_84_error_code_of_each_function_is_returned_and_not_raised() -> None:
    def check(row: Row) -> bool:
        simulator.fail_call(row.c_name, INJECTED)
        try:
            result = function(row)(*samples(row))
        finally:
            simulator.fail_call(row.c_name, 0, 0)
        code = result[-1] if isinstance(result, tuple) else result
        return bool(code == INJECTED and form_is_right(row, result))

    assert wrong([row for row in called(WITH_C) if row.code], check) == []


@pytest.mark.thorough
def test_83_other_threads_run_while_each_function_is_inside_c() -> None:
    own = {"aclGetRecentErrMsg"}  # every failing call reads the text, so a hang would not be of this call

    def check(row: Row) -> bool:
        ended = threading.Event()

        def call() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AclWarning)
                undo(row, function(row)(*samples(row)))
            ended.set()

        simulator.hang_call(row.c_name)
        thread = threading.Thread(target=call)
        thread.start()
        # This thread runs although the other one is inside C: it could not ask for that if the GIL were held.
        inside = until_now(lambda: simulator.hung(row.c_name) == 1) and not ended.is_set()
        simulator.release_call(row.c_name)
        thread.join()
        return bool(inside)

    assert wrong([row for row in called(WITH_C) if row.c_name not in own], check) == []


# --- arguments ----------------------------------------------------------------------------------------------------


def test_unsigned_argument_keeps_its_low_bits_as_in_pyacl() -> None:
    assert acl.float16_to_float((1 << 32) + 0x3C00) == 1.0
    assert acl.rt.free(-1) == acl.rt.free((1 << 64) - 1) != 0


def test_signed_argument_beyond_its_bits_raises_overflow_error() -> None:
    with pytest.raises(OverflowError, match=r"expected deviceId to have 32 bits, got 4294967296"):
        acl.rt.set_device(1 << 32)


def test_number_of_another_library_counts_as_an_int() -> None:
    import numpy as np

    assert acl.data_type_size(np.int64(acl.ACL_FLOAT)) == acl.data_type_size(np.uint8(0)) == 4


def test_text_with_a_null_character_raises_value_error() -> None:
    with pytest.raises(ValueError, match="without a null character"):
        acl.mdl.load_from_file("a\0b")


# --- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("f | aclrtMalloc | size:size policy:int | ret", "expected the parameters devPtr, size, policy"),
        ("f | aclrtMalloc | policy:int size:size | devPtr:pointer ret", "in the order of C"),
        (
            "f | aclrtMalloc | size:int policy:int | devPtr:pointer ret",
            "size: expected the kind of size_t, got int",
        ),
        (
            "f | aclrtMalloc | size:size policy:int | devPtr:int ret",
            r"devPtr: expected the kind of void \*\*, got int",
        ),
        ("f | aclrtMalok | | ret", "acl_api.inc has no function aclrtMalok"),
        ("f | hand aclrtMalok | | ret", "acl_api.inc has no function aclrtMalok"),
        ("f | aclmdlCreateDesc | | ret", "expected `ret` only for a function that returns aclError"),
        (
            "f | aclmdlGetNumInputs | modelDesc:pointer | int",
            "expected the kind of size_t as the only result",
        ),
    ],
)
def test_row_that_does_not_fit_the_acl_table_fails_the_build(line: str, words: str) -> None:
    [misfit] = build_pyacl.misfits((parse("rt", line),), STRUCTURES)
    assert re.search(words, misfit)


def test_build_ends_with_the_row_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Path(shutil.copy(build_pyacl.TABLE, tmp_path))
    shutil.copytree(FOLDER, tmp_path / FOLDER.name)
    monkeypatch.setattr(build_pyacl, "TABLE", table)
    assert build_pyacl.prototypes()
    with (tmp_path / FOLDER.name / "rt.txt").open("a") as file:
        file.write("f | aclrtMalloc | size:int policy:int | devPtr:pointer ret\n")
    for made in (build_pyacl.prototypes, build_pyacl.source):
        with pytest.raises(SystemExit, match=r"acl\.rt\.f: size: expected the kind of size_t, got int"):
            made()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("f | aclrtFree | devPtr:pointer", "expected 4 columns, got 3"),
        ("f | aclrtFree | devPtr:handle | ret", "expected a kind of aioacl/_pyacl/table.py, got 'handle'"),
    ],
)
def test_line_that_is_no_row_raises_value_error(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse("rt", line)


def test_rows_fit_the_acl_table() -> None:
    assert build_pyacl.misfits(ROWS, STRUCTURES) == []


def test_functions_have_the_name_signature_and_docstring_of_their_rows() -> None:
    for row in ROWS:
        made = function(row)
        assert made.__name__ == row.name
        assert row.signature in (made.__doc__ or "")
        assert getattr(made, "__module__", "") == row.full_name.rpartition(".")[0]


@pytest.mark.parametrize(
    ("call", "values"),
    [
        # The shapes that follow no rule, from the source of CANN's module: see docs/reference/pyacl.md.
        (lambda: acl.mdl.add_dataset_buffer(8, 0), (8,)),
        (lambda: acl.mdl.set_dataset_tensor_desc(8, 0, 0), (8,)),
        (lambda: acl.mdl.get_input_dims(0, 0), ({},)),
        (lambda: acl.mdl.get_input_dims_v2(0, 0), ({},)),
        (lambda: acl.mdl.get_output_dims(0, 0), ({},)),
        (lambda: acl.mdl.get_cur_output_dims(0, 0), ({},)),
        (lambda: acl.mdl.get_input_dims_range(0, 0), ({"rangeCount": 0, "range": []},)),
        (lambda: acl.mdl.get_input_dynamic_dims(0, 0, 4097), (None,)),
        (lambda: acl.mdl.get_aipp_type(7, 0), (0, 0)),
        (lambda: acl.mdl.create_and_get_op_desc(0, 0, 0, 8), ("", 0, 0, 0, 0)),
        (lambda: acl.mdl.query_size("nowhere"), (0, 0)),
        (lambda: acl.media.dvpp_vpc_batch_crop_async(0, 0, [1], 8, [0], 0), (0,)),
        (lambda: acl.media.dvpp_set_channel_desc_param(8, 0, 0), (8,)),
        (lambda: acl.media.venc_set_channel_desc_param(8, 0, 0), ()),
        (lambda: acl.media.dvpp_get_channel_desc_param(8, 0), (0, 0)),
        (lambda: acl.media.dvpp_png_get_image_info(0, 0), (0, 0, 0)),
        (lambda: acl.media.dvpp_get_hist_data(0, 0), (0, 0)),
        (lambda: acl.prof.get_op_type(0, 0, 0, 8), ("",)),
    ],
)
@pytest.mark.filterwarnings("ignore::aioacl.AclWarning")
def test_failed_call_returns_the_shape_of_pyacl(call: Callable[[], Any], values: tuple[object, ...]) -> None:
    result = call()
    *others, code = result if isinstance(result, tuple) else (result,)
    assert type(code) is int
    assert code != 0
    assert tuple(others) == values


def test_structures_are_empty_or_none_after_an_error() -> None:
    assert read("dims", None, 1) == {}
    assert read("aipp", None, 1) is None


# --- the modules --------------------------------------------------------------------------------------------------


def test_pyacl_is_the_module_acl() -> None:
    assert sys.modules["aioacl.pyacl"].__name__ == "acl"
    assert sys.modules["aioacl.pyacl"].rt is sys.modules["aioacl.pyacl.rt"] is acl.rt
    assert "acl" not in sys.modules, "import aioacl.pyacl must not shadow the real acl"


def test_constants_of_the_headers_and_error_codes_are_attributes() -> None:
    assert acl.ACL_MEMCPY_DEVICE_TO_HOST == 2
    assert acl.ACL_ERROR_REPEAT_INITIALIZE == 100002
    with pytest.raises(AttributeError, match=r"ACL_MEMCPY_HOST_TO_DEVISE \(did you mean"):
        getattr(acl, "ACL_MEMCPY_HOST_TO_DEVISE")  # noqa: B009 - type checkers know that it does not exist


def test_unknown_name_raises_attribute_error_with_a_close_match() -> None:
    with pytest.raises(AttributeError, match=r"'acl.rt' has no function mallok \(did you mean malloc\?\)"):
        getattr(acl.rt, "mallok")  # noqa: B009 - as above
    with pytest.raises(AttributeError, match="'acl' has no function himpi"):
        getattr(acl, "himpi")  # noqa: B009 - as above
    assert not hasattr(acl, "__wrapped__")

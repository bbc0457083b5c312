"""`python -m aioacl simulator atc` and `inspect`: options, output and refusals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base.paths import DATA
from aioacl._cli.atc import IGNORED, REFUSED
from aioacl.simulator._om import Description, Tensor, write
from scripts import pages
from tests.support import forkserver

pytest.importorskip("onnx", reason="atc needs the package onnx: pip install 'aioacl[onnx]'")

from onnx import TensorProto, helper

from tests.support import onnx_models as made

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    import onnx

PAGE = Path(__file__).parents[2] / "docs" / "simulated-models.md"
BATCHES = ("--input_shape", "x:-1,64", "--dynamic_batch_size=1,2,4,8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(made.linear().SerializeToString())
    return tmp_path


def simulator(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "aioacl", "simulator", *arguments]
    return forkserver.run(command, cwd=folder, env=dict(os.environ))


def atc(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return simulator("atc", "--model", "m.onnx", "--framework=5", "--output", "m", *arguments, folder=folder)


def found(done: subprocess.CompletedProcess[str], stderr: str = "") -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"aioacl: .*expected .*, got.*; .*\n", done.stderr), done.stderr
    return done.stderr


def _refusal(named: str, done: subprocess.CompletedProcess[str]) -> str:
    """The note of the command, which must name the tensor that `load_model` refuses."""
    assert done.stderr.startswith(
        "aioacl: load_model will refuse this model: expected a model with fixed shapes or with gears, got "
        f"{named}, which is known only when the model runs. "
    )
    return done.stderr


class TestAtc:
    def test_file_is_written_and_described(self, folder: Path) -> None:
        done = atc(*BATCHES, "--soc_version=Ascend310P3", "--json", folder=folder)
        result = found(done)
        onnx = (folder / "m.onnx").read_bytes()
        assert result["output"] == "m.om"
        assert result["simulated"] is True
        assert result["onnx_sha256"] == hashlib.sha256(onnx).hexdigest()
        assert result["bytes"] == (folder / "m.om").stat().st_size
        assert [each["shape"] for each in result["inputs"]] == [[-1, 64], [1]]
        assert [each["shape"] for each in result["outputs"]] == [[-1, 10]]
        assert result["gears"]["values"] == [[1], [2], [4], [8]]
        inspected = found(simulator("inspect", "m.om", "--json", folder=folder))
        assert {**inspected, "output": "m.om"} == {**result, "path": "m.om"}

    def test_page_shows_the_command_and_its_output(self, folder: Path) -> None:
        page = pages.one(
            "docs/simulated-models.md", __name__, lambda text: "SHA-256" in text, language="console"
        )
        _, command, *output = page.text.splitlines()
        (folder / "digits.onnx").write_bytes((DATA / "digits.onnx").read_bytes())
        done = simulator(*shlex.split(command)[5:], folder=folder)
        assert done.stdout.splitlines() == output

    def test_output_ends_with_the_path(self, folder: Path) -> None:
        done = atc(*BATCHES, folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "m.om"

    def test_suffix_is_not_repeated_and_the_file_is_replaced(self, folder: Path) -> None:
        for _ in range(2):
            assert found(atc(*BATCHES, "--output=m.om", "--json", folder=folder))["output"] == "m.om"
        assert sorted(path.name for path in folder.iterdir()) == ["m.om", "m.onnx"]

    def test_option_without_effect_is_noted(self, folder: Path) -> None:
        done = atc(*BATCHES, "--log=error", "--precision_mode", "force_fp32", "--json", folder=folder)
        notes = [
            "aioacl: --precision_mode has no effect: onnxruntime computes with the data types of the model",
            "aioacl: --log has no effect: the simulator writes no other files than the model",
        ]
        found(done, stderr="".join(f"{note}\n" for note in notes))

    def test_input_that_load_model_will_refuse_is_noted(self, folder: Path) -> None:
        done = atc("--input_shape=x:-1,64", "--json", folder=folder)
        note = _refusal("input 'x' of shape [?,64]", done)
        assert found(done, stderr=note)["dynamic"] is True
        assert "--dynamic_batch_size" in note

    def test_output_that_load_model_will_refuse_is_noted(self, folder: Path) -> None:
        node = helper.make_node("NonZero", ["x"], ["y"])
        source = made.model([node], [made.value("x", [4])], [made.value("y", None, TensorProto.INT64)])
        (folder / "m.onnx").write_bytes(source.SerializeToString())
        done = atc("--json", folder=folder)
        note = _refusal("output 'y' of shape [1,?]", done)
        assert found(done, stderr=note)["dynamic"] is True
        assert "aioacl.lowlevel" in note

    def test_type_that_load_model_will_refuse_is_noted(self, folder: Path) -> None:
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)]
        source = made.model(nodes, [made.value("x", [4])], [made.value("y", [4], TensorProto.INT4)])
        (folder / "m.onnx").write_bytes(source.SerializeToString())
        done = atc("--json", folder=folder)
        assert "load_model will refuse this model: expected tensors of types" in done.stderr

    def test_reason_of_onnxruntime_is_noted(self, folder: Path) -> None:
        node = helper.make_node("Custom", ["x"], ["y"], domain="com.example")
        source = made.model([node], [made.value("x", [4])], [made.value("y", ["n"])])
        (folder / "m.onnx").write_bytes(source.SerializeToString())
        first, second = atc("--json", folder=folder).stderr.splitlines()
        assert first.startswith(
            "aioacl: some shapes of outputs were not found (onnxruntime does not fold the "
        )
        assert "com.example" in first
        assert "output 'y' of shape [?]" in second

    def test_shape_that_the_inputs_decide_needs_no_note(self, folder: Path) -> None:
        (folder / "m.onnx").write_bytes(made.computed_shape().SerializeToString())
        result = found(atc("--input_shape=x:2,12", "--json", folder=folder))
        assert result["outputs"][0]["shape"] == [6, 4]

    @pytest.mark.parametrize(
        ("source", "names"), [(made.running_sum, ["last"]), (made.centred, ["y"]), (made.linear, [])]
    )
    def test_outputs_that_depend_on_the_padding_of_a_batch_are_noted(
        self, folder: Path, source: Callable[[], onnx.ModelProto], names: list[str]
    ) -> None:
        (folder / "m.onnx").write_bytes(source().SerializeToString())
        columns = 64 if source is made.linear else 3
        done = atc(f"--input_shape=x:-1,{columns}", "--dynamic_batch_size=1,4,8", "--json", folder=folder)
        assert done.returncode == 0
        assert re.findall(r"output '(\w+)' depends on the rows that pad a batch", done.stderr) == names
        assert len(done.stderr.splitlines()) == len(names)

    def test_dims_are_not_padded_and_need_no_note(self, folder: Path) -> None:
        (folder / "m.onnx").write_bytes(made.running_sum().SerializeToString())
        found(atc("--input_shape=x:-1,3", "--dynamic_dims=4;8", "--json", folder=folder))

    def test_padding_that_cannot_be_checked_is_noted(self, folder: Path) -> None:
        node = helper.make_node("Custom", ["x"], ["y", "z"], domain="com.example")
        source = made.model(
            [node], [made.value("x", ["N", 3])], [made.value("y", ["N", 3]), made.value("z", [3])]
        )
        (folder / "m.onnx").write_bytes(source.SerializeToString())
        done = atc("--input_shape=x:-1,3", "--dynamic_batch_size=1,4", "--json", folder=folder)
        assert done.returncode == 0
        first, second = done.stderr.splitlines()
        assert first.startswith(
            "aioacl: whether the padding of a batch changes the outputs was not checked: "
        )
        assert "output 'z' may depend on the padding" in second

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--framework=3",), "got 3 (TensorFlow)"),
            (("--mode=1",), "--mode: expected 0"),
            (("--insert_op_conf=aipp.cfg",), "got --insert_op_conf"),
            (("--input_shape=x:-1,63", "--dynamic_batch_size=1,2"), "m.onnx: --input_shape: expected"),
            (("--model=missing.onnx",), "missing.onnx: expected a file that can be read, got: No such file"),
            (("--model=.",), "got: Is a directory"),
            ((*BATCHES, "--output=missing/m"), "got missing/m.om: No such file"),
            (("--output=",), "expected the name of a file, got ''"),
            (("--output=folder/",), "expected the name of a file, got 'folder/'"),
        ],
    )
    def test_mistake_is_refused_in_one_line(
        self, folder: Path, options: tuple[str, ...], message: str
    ) -> None:
        assert message in refused(atc(*options, folder=folder))
        assert not (folder / "m.om").exists()

    def test_abbreviated_option_is_refused(self, folder: Path) -> None:
        done = atc("--input_sh=x:1,64", folder=folder)
        assert done.returncode == 2
        assert "unrecognized arguments: --input_sh" in done.stderr

    def test_refusal_with_json_is_an_object(self, folder: Path) -> None:
        done = atc("--mode=6", "--json", folder=folder)
        assert done.returncode == 2
        assert "simulator inspect" in json.loads(done.stdout)["error"]

    def test_usage_shows_options_without_a_value_as_such(self, folder: Path) -> None:
        done = atc("--help", folder=folder)
        assert "[--json]" in " ".join(done.stdout.split())

    def test_json_with_the_file_of_mode_1_is_refused(self, folder: Path) -> None:
        done = atc("--json=m.json", folder=folder)
        assert done.returncode == 2
        assert "--json: ignored explicit argument 'm.json'" in done.stderr

    def test_command_that_cannot_write_leaves_no_file(self, folder: Path) -> None:
        (folder / "m.om").mkdir()
        assert "expected the name of a file" in refused(atc(*BATCHES, folder=folder))
        assert sorted(path.name for path in folder.iterdir()) == ["m.om", "m.onnx"]

    def test_each_option_of_atc_is_documented(self) -> None:
        text = PAGE.read_text()
        assert [name for name in (*IGNORED, *REFUSED) if f"`--{name}`" not in text] == []
        assert not set(IGNORED) & set(REFUSED)


class TestInspect:
    def test_contents_are_a_table(self, folder: Path) -> None:
        assert atc(*BATCHES, folder=folder).returncode == 0
        done = simulator("inspect", "m.om", folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line.split() for line in done.stdout.splitlines()]
        assert ["input", "0", "x", "-1,64", "float32", "ND", "2048"] in lines
        assert ["output", "0", "y", "-1,10", "float32", "ND", "320"] in lines
        assert ["gears", "4", "of", "batch_size:", "1;", "2;", "4;", "8"] in lines

    @pytest.mark.parametrize(
        "texts",
        [(), ("0,0,1,10",), ("0,0,1,10", "1,0,8"), ("0,0,1,10", "1,0,x"), ("0,0,1,10", "")],
        ids=["none", "one of two", "other rank", "no number", "empty"],
    )
    def test_output_has_the_shape_of_the_file_if_the_gears_state_none(
        self, folder: Path, texts: tuple[str, ...]
    ) -> None:
        tensor = Tensor("y", 0, 2, (8, 10), 320)
        found = Description(outputs=(tensor,), batch_sizes=(1, 8), output_shapes=texts)
        (folder / "m.om").write_bytes(write("m", found, b""))
        done = simulator("inspect", "m.om", "--json", folder=folder)
        assert json.loads(done.stdout)["outputs"][0]["shape"] == [8, 10]

    def test_control_characters_in_a_name_are_escaped(self, folder: Path) -> None:
        tensor = Tensor("\033[31mred\n", 77, 99, (), 4)
        (folder / "m.om").write_bytes(write("\a", Description(outputs=(tensor,)), b""))
        done = simulator("inspect", "m.om", folder=folder)
        assert r"\x1b[31mred\n" in done.stdout
        assert "\033" not in done.stdout
        assert "\a" not in done.stdout

    def test_file_of_another_kind_is_refused(self, folder: Path) -> None:
        assert "m.onnx: expected a .om file" in refused(simulator("inspect", "m.onnx", folder=folder))
        assert "expected a file that can be read" in refused(simulator("inspect", "none.om", folder=folder))
        assert "/dev/zero: expected a .om file" in refused(simulator("inspect", "/dev/zero", folder=folder))

"""`simulator atc`: converts an ONNX model, with the options of CANN's atc.

atc has about ninety options. Each is handled in one of three ways: the simulator uses it; the simulator accepts it with
a note, because it changes only how a chip runs the model; or the simulator refuses it, because the model would have
other inputs, outputs or results.
"""

from __future__ import annotations

import secrets
import sys
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._cli import UserError
from aioacl._cli._model import described, show
from aioacl._cli._model_notes import notes
from aioacl._cli._screen import Screen, put, put_json
from aioacl.simulator._atc import INPUT_FORMATS, Options, convert
from aioacl.simulator._om import BadModel, read
from aioacl.simulator._onnx_child import because

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ONNX: Final = "5"
FRAMEWORKS: Final = {"0": "Caffe", "1": "MindSpore", "3": "TensorFlow", ONNX: "ONNX"}
SUFFIX: Final = ".om"

_PRECISION: Final = "onnxruntime computes with the data types of the model"
_CHIP: Final = "the simulator does not compile for a chip"
_FILES: Final = "the simulator writes no other files than the model"

IGNORED: Final = {
    **dict.fromkeys(
        (
            "allow_hf32",
            "customize_dtypes",
            "is_weight_clip",
            "keep_dtype",
            "modify_mixlist",
            "op_precision_mode",
            "op_select_implmode",
            "optypelist_for_implmode",
            "precision_mode",
            "precision_mode_v2",
        ),
        _PRECISION,
    ),
    **dict.fromkeys(
        (
            "ac_parallel_enable",
            "aicore_num",
            "atomic_clean_policy",
            "auto_tune_mode",
            "buffer_optimize",
            "build_config",
            "compress_weight_conf",
            "core_type",
            "deterministic",
            "deterministic_level",
            "device_id",
            "disable_reuse_memory",
            "enable_compress_weight",
            "enable_scope_fusion_passes",
            "enable_single_stream",
            "enable_small_channel",
            "fusion_switch_file",
            "host_env_cpu",
            "host_env_os",
            "jit_compile",
            "mdl_bank_path",
            "oo_constant_folding",
            "oo_dead_code_elimination",
            "oo_level",
            "op_bank_path",
            "op_compiler_cache_dir",
            "op_compiler_cache_mode",
            "op_debug_config",
            "op_debug_level",
            "optimization_switch",
            "quant_dumpable",
            "shape_generalized_build_mode",
            "sparsity",
            "static_model_ops_lower_limit",
            "status_check",
            "tiling_schedule_optimize",
            "virtual_type",
        ),
        _CHIP,
    ),
    **dict.fromkeys(
        (
            "check_report",
            "debug_dir",
            "dump_mode",
            "enable_attr_compression",
            "external_weight",
            "log",
            "save_original_model",
        ),
        _FILES,
    ),
}
"""The options that are accepted, with the reason why they have no effect."""

_ADJUSTED: Final = "cast and transpose inside the ONNX model"

REFUSED: Final = {
    "cal_conf": "quantize the ONNX model",
    "cluster_config": "convert for one device",
    "compression_optimize_conf": "quantize the ONNX model",
    "display_model_info": "use `python -m aioacl simulator inspect`",
    "hccl_sub_comm_config": "convert for one device",
    "input_fp16_nodes": _ADJUSTED,
    "input_hint_shape": "use --input_shape",
    "input_shape_range": "use --input_shape, which has ranges too",
    "insert_op_conf": "preprocess the images before the model (the simulator has no AIPP)",
    "is_input_adjust_hw_layout": _ADJUSTED,
    "is_output_adjust_hw_layout": _ADJUSTED,
    "om": "use `python -m aioacl simulator inspect`",
    "op_name_map": "rename the operators in the ONNX model",
    "out_nodes": "cut the ONNX model with onnx.utils.extract_model",
    "output_type": _ADJUSTED,
    "raw_ge_options": "use the options of atc",
    "raw_ge_options_ignore_unsupported": "use the options of atc",
    "singleop": "make an ONNX model with one node",
    "target": "use --soc_version",
    "weight": "convert an ONNX model, which contains its weights",
}
"""The options that are refused, with what to do."""


def add(actions: Any) -> None:
    """Adds the action to the parser of the simulator."""
    parser = actions.add_parser(
        "atc",
        help="convert an ONNX model to a .om file for the simulator",
        description="Convert an ONNX model to a .om file that the simulator runs with onnxruntime. The options are "
        "those of CANN's atc. Options that are not listed here are accepted with a note, or refused with a reason.",
        allow_abbrev=False,  # atc has options such as --op_bank_path
    )
    _add_options(parser)
    for name in (*IGNORED, *REFUSED):
        parser.add_argument(f"--{name}", nargs="?", const="", help=SUPPRESS)
    parser.set_defaults(run=run, parser=parser)


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="FILE", help="the ONNX model")
    parser.add_argument("--output", required=True, metavar="PATH", help="the file to write, without .om")
    parser.add_argument("--framework", required=True, metavar="5", help="the kind of the model: 5 is ONNX")
    parser.add_argument(
        "--input_shape",
        default="",
        metavar="SHAPES",
        help='the shapes of the inputs, such as "x:-1,64;y:1~8"; the gears replace -1',
    )
    gears = "gears; separated by"
    parser.add_argument(
        "--dynamic_batch_size", metavar="1,2,4", help=f"2 to 100 batch sizes as {gears} commas"
    )
    parser.add_argument(
        "--dynamic_image_size", metavar="H,W;H,W", help=f"2 to 100 image sizes as {gears} semicolons"
    )
    parser.add_argument(
        "--dynamic_dims",
        metavar="N,M;N,M",
        help="2 to 100 gears, each with a value for each -1 of --input_shape",
    )
    parser.add_argument(
        "--input_format",
        default=INPUT_FORMATS[0],
        choices=INPUT_FORMATS,
        help="the format of inputs with as many dimensions as the format (default: %(default)s)",
    )
    parser.add_argument(
        "--soc_version", metavar="CHIP", help="the chip: any name, because the simulator has none"
    )
    parser.add_argument("--mode", default="0", metavar="0", help="0 converts a model; there is no other mode")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: Namespace) -> int:
    """Converts the model, and prints what was written."""
    _check(arguments)
    for name in IGNORED:
        if getattr(arguments, name) is not None:
            put(f"aioacl: --{name} has no effect: {IGNORED[name]}\n", sys.stderr)
    path = _output(arguments.output)
    reasons: list[str] = []
    try:
        content = convert(arguments.model, _options(arguments), path.stem, reasons.append)
    except BadModel as error:
        raise UserError(f"{arguments.model}: {error}") from error
    except OSError as error:
        raise UserError(
            f"{arguments.model}: expected a file that can be read, got: {error.strerror or error}; correct --model"
        ) from error
    _write(path, content)
    model = read(content)
    unfolded = [f"some shapes of outputs were not found{because(each)}" for each in reasons]
    for note in (*unfolded, *notes(model)):
        put(f"aioacl: {note}\n", sys.stderr)
    if arguments.json:
        put_json({"output": str(path), **described(model, len(content))})
        return 0
    show(model, len(content), Screen())
    put(f"{path}\n")
    return 0


def _check(arguments: Namespace) -> None:
    if arguments.framework != ONNX:
        got = f"{arguments.framework} ({FRAMEWORKS.get(arguments.framework, 'unknown')})"
        raise UserError(f"--framework: expected {ONNX} (ONNX), got {got}; export the model to ONNX")
    if arguments.mode != "0":
        raise UserError(
            f"--mode: expected 0, which converts a model, got {arguments.mode}; "
            "for a description of a .om file, use `python -m aioacl simulator inspect`"
        )
    for name, remedy in REFUSED.items():
        if getattr(arguments, name) is not None:
            raise UserError(f"expected only options that the simulator implements, got --{name}; {remedy}")


def _options(arguments: Namespace) -> Options:
    return Options(
        input_shape=arguments.input_shape,
        dynamic_batch_size=arguments.dynamic_batch_size,
        dynamic_image_size=arguments.dynamic_image_size,
        dynamic_dims=arguments.dynamic_dims,
        input_format=arguments.input_format,
    )


def _output(text: str) -> Path:
    path = Path(text if text.endswith(SUFFIX) else f"{text}{SUFFIX}")
    if not text or text.endswith("/") or path.is_dir():
        raise UserError(
            f"--output: expected the name of a file, got {text!r}; add a name, such as {text}model"
        )
    return path


def _write(path: Path, content: bytes) -> None:
    """Writes the file under a temporary name and renames it, so that no other process reads half a model."""
    temporary = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}")
    try:
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"--output: expected a file that can be written, got {path}: {error.strerror or error}; correct the path"
        ) from error

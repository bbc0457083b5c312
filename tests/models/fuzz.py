"""`python -m tests.models.fuzz [--files N] [--seed N]` loads damaged `.onnx` files in the simulator.

The files are truncated, have flipped bits, or have numbers that were replaced. A child process loads and describes one
file after the other, with limits of memory and of processor time. If the child dies, a new child continues with the
next file, and the file is loaded with onnxruntime alone, in a child of its own. If that child dies too, onnxruntime has
crashed: this is reported, and is not a failure. Everything else is a failure: a death of the child, a code that a
damaged file may not have, a violation, and a model that is left. The exit status is then 1.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[2]
MEMORY_BYTES: Final = 4 << 30
FILE_SECONDS: Final = 20  # of processor time
ALLOWED: Final = {0: "loaded", 545001: "refused by onnxruntime", 145006: "refused by the simulator"}
BIG: Final = (0, 1, 0x7F, 0xFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)
FILE: Final = "file"


def originals() -> list[bytes]:
    """The models that are damaged: a product, a fixed and an open shape, many nodes, and a shape in the data."""
    from tests.simulator import modelfiles
    from tests.support import onnx_models as made

    chain = [("Add", [f"v{number}", "x"], [f"v{number + 1}"]) for number in range(20)]
    chain[0] = ("Relu", ["x"], ["v1"])
    return [
        made.linear().SerializeToString(),
        modelfiles.doubling_onnx(),
        modelfiles.doubling_onnx("n"),
        modelfiles.onnx_model(chain, {"x": [2, 3]}, {"v20": [2, 3]}),
        modelfiles.onnx_model([("Reshape", ["x", "s"], ["y"])], {"x": [6]}, {"y": [2, 3]}, s=[2.0, 3.0]),
    ]


def damaged(number: int, seed: int, models: list[bytes]) -> bytes:
    """The file with this number. The same seed gives the same files."""
    draw = random.Random(f"{seed}-{number}")
    content = bytearray(draw.choice(models))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        draw.choice((_flip, _flip, _flip, _flip, _replace, _repeat))(content, draw)
    if draw.random() < 0.25:
        del content[draw.randrange(len(content)) :]
    return bytes(content)


def _flip(content: bytearray, draw: random.Random) -> None:
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def _replace(content: bytearray, draw: random.Random) -> None:
    """Puts a number in the place of a byte, in the encoding of ONNX's numbers."""
    value, encoded = draw.choice(BIG), bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    at = draw.randrange(len(content))
    content[at : at + 1] = bytes([*encoded, value])


def _repeat(content: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(content))
    content[start:start] = content[start : start + draw.randrange(1, 40)]


# --- the children --------------------------------------------------------------------------------------------------


def _limit_memory() -> None:
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(what: int, most: int) -> None:
    """Sets the soft limit, which a process may raise again, but not above the hard limit."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _allow_time() -> None:
    """Gives the process more processor time, for one file. SIGXCPU ends a process that needs more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + FILE_SECONDS)


def load_all(first: int, end: int, seed: int, path: Path) -> None:
    """Loads the files. Prints a line before each file, and a line with the result after it."""
    import aioacl
    from aioacl import simulator
    from tests.simulator.modelcalls import load_code
    from tests.simulator.rawacl import device, good

    aioacl.use_library("simulator")
    models = originals()
    _limit_memory()
    with device():
        for number in range(first, end):
            path.write_bytes(damaged(number, seed, models))
            _allow_time()
            print(FILE, number, flush=True)
            code, model = load_code(path)
            if code == 0:
                _describe(model)
                good("aclmdlUnload", model)
            wrong = simulator.violations() or simulator.stats().offline_models
            print("code", code if not wrong else f"{code} {wrong}", flush=True)


def _describe(model: int) -> None:
    """Calls the functions that describe each input and output. Their results depend on the damage."""
    from tests.simulator.modelcalls import described, new, value
    from tests.simulator.rawacl import rc

    with described(model) as desc:
        dims = new("aclmdlIODims *")
        for side in ("Input", "Output"):
            for index in range(value(f"aclmdlGetNum{side}s", desc)):
                value(f"aclmdlGet{side}SizeByIndex", desc, index)
                value(f"aclmdlGet{side}NameByIndex", desc, index)
                rc(f"aclmdlGet{side}Dims", desc, index, dims)


def load_alone(number: int, seed: int) -> None:
    """Loads one file with onnxruntime, without the simulator."""
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs] - it has no types

    content = damaged(number, seed, originals())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    _limit_memory()
    _allow_time()
    try:
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        print(type(error).__name__)


# --- the parent ----------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What has happened to the files.

    Attributes:
        counts: how many files had each result.
        crashes: the files that end onnxruntime, with the status of the child.
        failures: what went wrong in the simulator.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    crashes: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])


def _child(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.models.fuzz", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)


def judge(number: int, code: str, result: Result) -> None:
    """Counts the result of a file whose load returned."""
    if code.isdecimal() and int(code) in ALLOWED:
        result.counts[ALLOWED[int(code)]] += 1
    else:
        result.failures.append(f"file {number}: expected one of the codes {sorted(ALLOWED)}, got {code}")


def judge_death(number: int, status: int, dies_alone: Callable[[int], bool], result: Result) -> None:
    """Finds out whether the simulator or onnxruntime has ended the child."""
    if dies_alone(number):
        result.counts["end onnxruntime"] += 1
        result.crashes.append(f"file {number}: onnxruntime ended the process, status {status}")
    else:
        result.failures.append(f"file {number}: expected a code, got a process that ended, status {status}")


def lines_of(output: str) -> Iterator[tuple[int, str]]:
    """Yields the number of each file that was begun, with its code; "" if the child died."""
    number = None
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if word == FILE:
            number = int(rest)
        elif word == "code" and number is not None:
            yield number, rest
            number = None
    if number is not None:
        yield number, ""


def fuzz(files: int, seed: int) -> Result:
    """Loads all files."""
    result, following = Result(), 0
    with tempfile.TemporaryDirectory(prefix="aioacl-fuzz-") as folder:
        while following < files:
            done = _child("--load", following, files, "--seed", seed, "--path", Path(folder, "damaged.onnx"))
            seen = list(lines_of(done.stdout))
            for number, code in seen:
                if code:
                    judge(number, code, result)
                else:
                    judge_death(number, done.returncode, lambda at: _dies_alone(at, seed), result)
            if not seen or (done.returncode and seen[-1][1]):
                result.failures.append(
                    f"a child ended between two files, status {done.returncode}: {done.stderr}"
                )
                break
            following = seen[-1][0] + 1
    return result


def _dies_alone(number: int, seed: int) -> bool:
    return _child("--alone", number, "--seed", seed).returncode < 0


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if the simulator has treated all files correctly."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=20000, metavar="N", help="how many files (20000)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the damage (1)")
    parser.add_argument("--load", type=int, nargs=2, metavar=("FIRST", "END"), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.load is not None:
        first, end = options.load
        load_all(first, end, options.seed, options.path)
        return 0
    if options.alone is not None:
        load_alone(options.alone, options.seed)
        return 0
    began = time.monotonic()
    result = fuzz(options.files, options.seed)
    print(f"{options.files} damaged files in {time.monotonic() - began:.0f} s:")
    print("\n".join(f"  {count} {what}" for what, count in result.counts.most_common()))
    print("\n".join([*result.crashes, *result.failures]))
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Fuzzes the simulator's whole ABI under ASan and UBSan, with clang's libFuzzer.

    python tests/native/fuzz/run.py [--runs N] [--seconds N] [--corpus FOLDER] [INPUT ...]

Builds the simulator and the harness. Then runs N programs of calls, or stops after N seconds. If inputs are given,
only these are run, to reproduce a finding. Exits with 1 after a finding, and leaves its input in the current folder
as fuzz-*. Exits with 77 if there is no clang with libFuzzer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
sys.path.insert(0, str(ROOT))  # the sys.path of a script contains only its own folder

from build_ffi import SIMULATOR, c_files, include_flags  # noqa: E402  # after the path is known
from tests.native.fuzz.table import source  # noqa: E402

COMPILER: Final = os.environ.get("FUZZ_CC", "clang")
SANITIZERS: Final = "address,undefined"
FLAGS: Final = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread"]
INCLUDES: Final = [*include_flags(), f"-I{HERE}"]
INPUT_BYTES: Final = 512
MISSING: Final = 77


def available() -> bool:
    """Whether the compiler is installed and has libFuzzer."""
    if shutil.which(COMPILER) is None:
        return False
    probe = "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 99; }"
    with tempfile.TemporaryDirectory() as folder:
        command = [COMPILER, "-fsanitize=fuzzer,address", "-xc", "-", "-o", f"{folder}/probe"]
        return subprocess.run(command, input=probe.encode(), capture_output=True, check=False).returncode == 0


def build(folder: Path) -> Path:
    """Builds the fuzzer from the simulator's sources, the harness and the generated calls."""
    calls = folder / "calls.c"
    calls.write_text(source())
    sources = [*c_files(SIMULATOR), *c_files(HERE), calls]
    sanitize = [f"-fsanitize=fuzzer-no-link,{SANITIZERS}", "-fno-sanitize-recover=all"]

    def compile_one(path: Path) -> str:
        target = folder / f"{path.parent.name}-{path.stem}.o"
        subprocess.run(
            [COMPILER, *FLAGS, *sanitize, *INCLUDES, "-c", str(path), "-o", str(target)], check=True
        )
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    program = folder / "fuzz"
    link = [f"-fsanitize=fuzzer,{SANITIZERS}", *objects, "-pthread", "-ldl", "-lm", "-o", str(program)]
    subprocess.run([COMPILER, *link], check=True)
    return program


def fuzz(program: Path, options: argparse.Namespace) -> int:
    """Runs the fuzzer. Returns the exit status of libFuzzer."""
    corpus = Path(options.corpus).resolve() if options.corpus else program.parent / "corpus"
    corpus.mkdir(exist_ok=True)
    command = [
        str(program),
        f"-runs={options.runs}",
        f"-max_total_time={options.seconds}",
        f"-max_len={INPUT_BYTES}",
    ]
    command += ["-len_control=0", "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1"]
    command += [f"-artifact_prefix={Path.cwd()}/fuzz-"]
    targets = [str(Path(one).resolve()) for one in options.inputs] or [str(corpus)]
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1:handle_abort=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    # run in that folder, because some calls write files
    return subprocess.run([*command, *targets], cwd=program.parent, env=environment, check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    """Builds and runs the fuzzer. Returns 0 if there was no finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000_000, help="number of programs to run (1000000)")
    parser.add_argument(
        "--seconds", type=int, default=0, help="longest time to run, in seconds (0: no limit)"
    )
    parser.add_argument("--corpus", help="folder for inputs that reach new code")
    parser.add_argument("inputs", nargs="*", help="run only these inputs")
    options = parser.parse_args(arguments)
    if not available():
        print(
            f"expected {COMPILER} with libFuzzer, found none; install clang or set FUZZ_CC", file=sys.stderr
        )
        return MISSING
    with tempfile.TemporaryDirectory(prefix="aioacl-fuzz-") as folder:
        return 1 if fuzz(build(Path(folder)), options) else 0


if __name__ == "__main__":
    sys.exit(main())

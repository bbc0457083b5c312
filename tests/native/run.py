"""Builds the engine, the simulator and the programs of this folder under sanitizers, and runs the programs.

    python tests/native/run.py [--seconds N] [--rounds N] [--only asan|tsan] [--match TEXT]

ASan with UBSan and leak checking runs first, then TSan; there are no suppressions. The exit status is 1 if a program
fails or a sanitizer reports an error. `test_*.c` are lists of tests; each test runs in a process of its own.
`engine*.c` is the stress test, which runs for the given time under each strategy of waiting. The simulator's own
programs in `sim/` are built and run too. Only a C compiler is needed (CC, or gcc).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
sys.path.insert(0, str(ROOT))  # the sys.path of a script contains only its own folder

from build_ffi import NATIVE, RUNTIME, SIMULATOR, c_files, include_flags  # noqa: E402  # after the path is set

COMPILER: Final = os.environ.get("CC", "gcc")
FLAGS: Final = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", "-fPIC", "-pthread"]
WARNINGS: Final = ["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wstrict-prototypes"]
INCLUDES: Final = [*include_flags(), f"-I{HERE}"]
# The functions that a list of tests replaces. test_memory.c lets them fail; in test_port.c, the loop acts in a sleep.
WRAPPED: Final = {
    "test_memory": ("malloc", "calloc", "realloc", "strdup", "eventfd", "pthread_create"),
    "test_port": ("nanosleep",),
}
TEST_SECONDS: Final = 180
ROUNDS: Final = 3000
ROUNDS_IN_TEST_SECONDS: Final = 20_000
GRACE_SECONDS: Final = 120
OWN_SECONDS: Final = TEST_SECONDS + GRACE_SECONDS


@dataclass(frozen=True)
class Sanitizer:
    """The compiler options of a sanitizer, and the environment that makes it strict."""

    name: str
    flags: tuple[str, ...]
    environment: dict[str, str]


# The thread-local memory of a library that dlopen() loads causes two problems. Another thread frees this memory
# inside the C library, where TSan sees no synchronization. LSan guesses the bounds of the memory from the bytes
# before it. If the address ends in 0x010, LSan takes these bytes for the C library's own and reads unmapped memory.
# With initial-exec, the memory is part of the static thread-local block of each thread, and both problems are gone.
INITIAL_EXEC: Final = "-ftls-model=initial-exec"
SANITIZERS: Final = (
    Sanitizer(
        "asan",
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", INITIAL_EXEC),
        {
            "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=97:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
    ),
    Sanitizer(
        "tsan",
        ("-fsanitize=thread", INITIAL_EXEC),
        {"TSAN_OPTIONS": "halt_on_error=1:exitcode=97:second_deadlock_stack=1"},
    ),
)


class Failed(Exception):
    """A program could not be built, or has failed."""


def run(command: list[str], environment: dict[str, str] | None = None, limit: float | None = None) -> str:
    """Runs a command and returns its output. Raises Failed if its status is not 0 or it exceeds the time limit."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(command)}: expected to end within {limit} s\n{late.output or ''}") from None
    if done.returncode:
        raise Failed(f"{' '.join(command)}: expected status 0, got {done.returncode}\n{done.stdout}")
    return done.stdout


class Build:
    """Objects and programs of one sanitizer, in one folder."""

    def __init__(self, folder: Path, sanitizer: Sanitizer) -> None:
        self.folder = folder
        self.sanitizer = sanitizer
        self.fixed = fixed_addresses() if sanitizer.name == "tsan" else []

    def compile(self, source: Path) -> Path:
        """Compiles a source. Returns the path of the object."""
        target = self.folder / f"{'-'.join(source.relative_to(ROOT).parts)}.o"
        flags = [*FLAGS, *WARNINGS, *self.sanitizer.flags, *INCLUDES]
        run([COMPILER, *flags, "-c", str(source), "-o", str(target)])
        return target

    def compile_all(self, sources: list[Path]) -> list[Path]:
        """Compiles the sources in parallel. Returns the paths of the objects."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self.compile, sources))

    def link(self, name: str, objects: list[Path], *more: str) -> Path:
        """Links a program or a library."""
        target = self.folder / name
        parts = [*self.sanitizer.flags, *map(str, objects), *more, "-pthread", "-ldl", "-lm"]
        run([COMPILER, *parts, "-o", str(target)])
        return target

    def start(self, program: Path, *arguments: str, limit: float = TEST_SECONDS, **environment: str) -> str:
        """Runs a program with the simulator as its library, and returns its output."""
        libraries = {
            "AIOACL_TEST_LIBRARY": str(self.folder / "libascendcl.so"),
            "AIOACL_SIM_ONNXRUNTIME": str(self.folder / "libonnxruntime.so"),
        }
        command = [*self.fixed, str(program), *arguments]
        return run(command, {**self.sanitizer.environment, **libraries, **environment}, limit)


def fixed_addresses() -> list[str]:
    """Returns a command that turns off address space randomization, or [] if this machine has none.

    On some kernels, TSan fails if addresses are randomized.
    """
    tool = shutil.which("setarch")
    command = [tool, "-R"] if tool else []
    if not command or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return []
    return command


def say(build: Build, what: str, began: float) -> None:
    """Prints one line of progress."""
    print(f"{build.sanitizer.name}  {time.monotonic() - began:6.1f} s  {what}", flush=True)


def matching(pattern: str) -> list[Path]:
    """The C files of this folder that match the pattern. Raises Failed if there are none."""
    found = sorted(HERE.glob(pattern))
    if not found:
        raise Failed(f"expected {pattern} in {HERE}, found none; correct the pattern")
    return found


def plain(made: Path) -> str:
    """The name of the source of an object, without folders and suffix."""
    return made.name.removesuffix(".c.o").rpartition("-")[2]


def link_options(name: str) -> list[str]:
    """The options with which a list of tests is linked."""
    return [f"-Wl,--wrap={function}" for function in WRAPPED.get(name, ())]


def programs(build: Build) -> tuple[list[Path], Path, list[Path]]:
    """Builds everything: the lists of tests, the stress test, and the simulator's own programs."""
    simulator = build.compile_all(c_files(SIMULATOR))
    runtime = build.compile_all(c_files(RUNTIME))
    needs = str(build.link("libruntime.so", runtime, "-shared", "-Wl,-soname,libruntime.so"))
    linking = ["-Wl,--no-as-needed", needs, "-Wl,-rpath,$ORIGIN"]
    build.link("libascendcl.so", simulator, "-shared", "-Wl,-soname,libascendcl.so", *linking)
    build.link("libonnxruntime.so", [build.compile(HERE / "standin_onnxruntime.c")], "-shared")
    engine = build.compile_all(c_files(NATIVE))
    bed = build.compile(HERE / "bed.c")
    lists = build.compile_all(matching("test_*.c"))
    stress = build.compile_all(matching("engine*.c"))
    sim = build.compile_all(c_files(HERE / "sim"))
    return (
        [build.link(plain(test), [test, bed, *engine], *link_options(plain(test))) for test in lists],
        build.link("engine_stress", [*stress, bed, *engine]),
        [build.link(plain(one), [one, *simulator, *runtime]) for one in sim],
    )


def check(build: Build, seconds: float, rounds: int, match: str) -> None:
    """Runs everything that was built. The stress tests run last, one at a time; the other programs use all cores."""
    began = time.monotonic()
    lists, stress, own = programs(build)
    say(build, "built", began)
    runs = [
        partial(build.start, program, limit=OWN_SECONDS, AIOACL_ROUNDS=str(rounds))
        for program in own
        if match in "simulator"
    ]
    say(build, f"the simulator's programs: {len(runs)}", began)
    for program in lists:
        names = build.start(program).split()
        chosen = [name for name in names if match in f"{program.stem}.{name}"]
        limit = TEST_SECONDS * max(1.0, rounds / ROUNDS_IN_TEST_SECONDS)
        runs += [
            partial(build.start, program, name, limit=limit, AIOACL_ROUNDS=str(rounds)) for name in chosen
        ]
        say(build, f"{program.name}: {len(chosen)} tests", began)
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:  # one more: tests wait half of the time
        for ended in [pool.submit(run) for run in runs]:
            ended.result()
    say(build, f"{len(runs)} passed", began)
    for strategy in ("watch", "thread") if match in "stress" else ():
        limit = seconds + GRACE_SECONDS
        result = build.start(stress, strategy, str(seconds), limit=limit, AIOACL_SIM_RESET_DROP_MS="5")
        say(build, f"stress test, {strategy}: {result.strip()}", began)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all programs have passed, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds for each stress test (10)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each race ({ROUNDS})")
    parser.add_argument("--only", choices=[one.name for one in SANITIZERS], help="only this sanitizer")
    parser.add_argument(
        "--match", default="", help="only tests whose `file.name` contains this; or 'stress' or 'simulator'"
    )
    options = parser.parse_args(arguments)
    try:
        for sanitizer in SANITIZERS:
            if options.only in (None, sanitizer.name):
                with tempfile.TemporaryDirectory(prefix="aioacl-native-") as folder:
                    check(Build(Path(folder), sanitizer), options.seconds, options.rounds, options.match)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The peers' way to ACL: a cffi module of their own, in API mode, which calls the library that aioacl has loaded.

The prototypes come from the table of ACL functions. The module is compiled into build/benchmarks once, and again when
its source changes.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Final

from cffi import FFI

ROOT: Final = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import build_ffi  # noqa: E402 - it is next to the package

FOLDER: Final = ROOT / "build" / "benchmarks"
MODULE: Final = "_benchmarks_raw"
FUNCTIONS: Final = (
    "aclmdlCreateDataset",
    "aclmdlExecuteAsync",
    "aclmdlGetDatasetNumBuffers",
    "aclrtBinaryGetFunction",
    "aclrtBinaryLoadFromData",
    "aclrtBinaryUnLoad",
    "aclrtCreateEventExWithFlag",
    "aclrtCreateStream",
    "aclrtDestroyStream",
    "aclrtGetCurrentContext",
    "aclrtLaunchHostFunc",
    "aclrtLaunchKernel",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtRecordEvent",
    "aclrtSetCurrentContext",
    "aclrtSetDevice",
    "aclrtStreamQuery",
    "aclrtStreamWaitEvent",
    "aclrtSynchronizeStream",
)
MODEL_TYPE: Final = """
typedef struct {
    uint32_t model;
    aclrtStream stream;
    const aclmdlDataset *input;
    aclmdlDataset *output;
    void *device_in;
    void *device_out;
    void *pinned_in;
    void *pinned_out;
    size_t bytes_in;
    size_t bytes_out;
} raw_model_t;
"""
DECLARATIONS: Final = """
aclError raw_model(const raw_model_t *model, const void *x, void *y, long calls);
int raw_thread_begin(const raw_model_t *model, const void *x, void *y, int wakes);
void raw_thread_call(void);
aclError raw_thread_end(void);
int raw_open(const char *path);
aclError raw_launch_done(aclrtStream stream, uintptr_t key);
int raw_timer(int64_t first_ns, int64_t period_ns);
extern "Python" void raw_done(uintptr_t key);
"""
HEAD: Final = """
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "acl_types.h"

static void raw_done(uintptr_t key);
"""
TAIL: Final = """
static void entered(void *args) {
    raw_done((uintptr_t)args);
}

static aclError raw_launch_done(aclrtStream stream, uintptr_t key) {
    return acl.aclrtLaunchHostFunc(stream, entered, (void *)key);
}

/* Runs a model: copies in, uploads, executes, downloads, waits and copies out, all on this thread. */
static aclError raw_model(const raw_model_t *model, const void *x, void *y, long calls) {
    aclError code = 0;
    for (long i = 0; i < calls && code == 0; i++) {
        memcpy(model->pinned_in, x, model->bytes_in);
        code = acl.aclrtMemcpyAsync(model->device_in, model->bytes_in, model->pinned_in, model->bytes_in,
                                    ACL_MEMCPY_HOST_TO_DEVICE, model->stream);
        if (code == 0) {
            code = acl.aclmdlExecuteAsync(model->model, model->input, model->output, model->stream);
        }
        if (code == 0) {
            code = acl.aclrtMemcpyAsync(model->pinned_out, model->bytes_out, model->device_out,
                                        model->bytes_out, ACL_MEMCPY_DEVICE_TO_HOST, model->stream);
        }
        if (code == 0) {
            code = acl.aclrtSynchronizeStream(model->stream);
        }
        if (code == 0) {
            memcpy(y, model->pinned_out, model->bytes_out);
        }
    }
    return code;
}

/* The least thread that makes calls of a model for an event loop: a word wakes it, it makes one call, and a write
 * to a descriptor wakes the loop. It checks nothing, and all calls have the same argument and result. */
static struct {
    raw_model_t model;
    const void *x;
    void *y;
    void *context;
    int wakes;
    pthread_t thread;
    aclError code;
    _Atomic uint32_t asked; /* 0: nothing; 1: a call; 2: to end */
} raw_thread;

static void *raw_thread_run(void *unused) {
    uint32_t asked;
    raw_thread.code = acl.aclrtSetCurrentContext(raw_thread.context);
    while ((asked = atomic_exchange(&raw_thread.asked, 0)) != 2) {
        if (asked == 0) {
            syscall(SYS_futex, &raw_thread.asked, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
            continue;
        }
        aclError code = raw_model(&raw_thread.model, raw_thread.x, raw_thread.y, 1);
        raw_thread.code = raw_thread.code ? raw_thread.code : code;
        uint64_t one = 1;
        if (write(raw_thread.wakes, &one, sizeof one) != sizeof one) {
            return unused;
        }
    }
    return unused;
}

static void raw_thread_ask(uint32_t what) {
    atomic_store(&raw_thread.asked, what);
    syscall(SYS_futex, &raw_thread.asked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* On a thread whose context is current. */
static int raw_thread_begin(const raw_model_t *model, const void *x, void *y, int wakes) {
    raw_thread.model = *model;
    raw_thread.x = x;
    raw_thread.y = y;
    raw_thread.wakes = wakes;
    aclError code = acl.aclrtGetCurrentContext(&raw_thread.context);
    return code ? code : pthread_create(&raw_thread.thread, NULL, raw_thread_run, NULL);
}

static void raw_thread_call(void) {
    raw_thread_ask(1);
}

static aclError raw_thread_end(void) {
    raw_thread_ask(2);
    pthread_join(raw_thread.thread, NULL);
    atomic_store(&raw_thread.asked, 0);
    return raw_thread.code;
}

/* A descriptor that is readable at `first_ns` of the monotonic clock, and after each period. */
static int raw_timer(int64_t first_ns, int64_t period_ns) {
    struct itimerspec when = {
        .it_value = {first_ns / 1000000000, first_ns % 1000000000},
        .it_interval = {period_ns / 1000000000, period_ns % 1000000000},
    };
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return fd < 0 || timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, 0) != 0 ? -1 : fd;
}
"""


def _rows() -> list[build_ffi.Function]:
    found = {row.name: row for row in build_ffi.table()}
    return [found[name] for name in FUNCTIONS]


def declarations() -> str:
    """Returns the declarations for cffi."""
    prototypes = [f"{row.returns} {row.name}({row.params});" for row in _rows()]
    return "\n".join([build_ffi.plain("acl_types.h"), *prototypes, MODEL_TYPE, DECLARATIONS])


def source() -> str:
    """Returns the C source: each function calls the function of the library that `raw_open` has found."""
    rows = _rows()
    members = "\n".join(f"    {row.returns} (*{row.name})({row.params});" for row in rows)
    finds = "\n".join(
        f'    if ((*(void **)(void *)&acl.{row.name} = dlsym(library, "{row.name}")) == 0) return -1;'
        for row in rows
    )
    calls = "\n".join(
        f"static {row.returns} {row.name}({row.params}) {{ return acl.{row.name}({row.args}); }}"
        for row in rows
    )
    opens = (
        "static int raw_open(const char *path) {\n"
        "    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);\n"
        f"    if (library == 0) return -1;\n{finds}\n    return 0;\n}}"
    )
    return "\n".join([HEAD, MODEL_TYPE, f"static struct {{\n{members}\n}} acl;", opens, calls, TAIL])


def _compiled() -> Path:
    """Returns the path of the compiled module; compiles it if its source has changed."""
    builder = FFI()
    builder.cdef(declarations())
    text = source()
    builder.set_source(
        MODULE,
        text,
        include_dirs=[str(folder) for folder in build_ffi.header_folders(build_ffi.NATIVE)],
        extra_compile_args=["-O2"],
    )
    key = hashlib.sha256(f"{declarations()}{text}{sys.version}{sys.platform}".encode()).hexdigest()[:16]
    path = FOLDER / f"{MODULE}-{key}.so"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            made = builder.compile(tmpdir=folder)
            Path(made).replace(path)  # in one step: another process may compile the same source
    return path


def load(library: str) -> tuple[Any, Any]:
    """Returns `ffi` and `lib` of the module, whose functions call that library. The library must be loaded already."""
    path = str(_compiled())
    loader = ExtensionFileLoader(MODULE, path)
    spec = spec_from_loader(MODULE, loader)
    assert spec is not None
    module: Any = module_from_spec(spec)
    loader.exec_module(module)
    if module.lib.raw_open(library.encode()):
        raise SystemExit(
            f"expected a loaded library with all functions of the peers, got {library}; open it first"
        )
    return module.ffi, module.lib


def check(code: int, call: str) -> None:
    """Raises RuntimeError if a call of a peer has failed."""
    if code:
        raise RuntimeError(f"{call}: expected 0, got {code}; see the codes of ACL")

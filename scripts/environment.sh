# Sourced by ./demo and ./test, which set `root`: makes or refreshes .venv. POSIX sh; safe to run again and again.
#
# PYTHON=/path/to/python chooses the interpreter of a new .venv, CC the compiler.

python="$root/.venv/bin/python"
stamp="$root/.venv/aioacl-stamp"

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Prints what a Python lacks for the build, and nothing if it will do.
lacking() {
    "$1" - <<'PYTHON' 2>/dev/null || echo "it does not start"
import os, sys, sysconfig
try:
    import ensurepip, venv
except ImportError:
    venv = None
if sys.version_info < (3, 11):
    print("it is Python %d.%d, and 3.11 is the oldest that will do" % sys.version_info[:2])
elif not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("its C headers are missing (on Debian and Ubuntu: apt install python3-dev)")
elif venv is None:
    print("its venv module is missing (on Debian and Ubuntu: apt install python3-venv)")
PYTHON
}

# The first Python that will do, in `found`.
find_python() {
    reasons=
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        found=$(command -v "$name") || continue
        reason=$(lacking "$found")
        [ -n "$reason" ] || return 0
        reasons="$reasons
  $found: $reason"
    done
    die "aioacl needs Python 3.11 or later, with its C headers." "${reasons:-  no python3 is in PATH}"
}

# setuptools calls $CC, or the compiler that Python was built with, which need not be here.
find_compiler() {
    wanted=${CC:-$("$found" -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])')}
    for name in "${wanted%% *}" cc gcc clang; do
        if command -v "$name" >/dev/null; then
            [ "$name" = "${wanted%% *}" ] || export CC="$name"
            return 0
        fi
    done
    die "aioacl needs a C compiler, and none is in PATH: no ${wanted%% *}, cc, gcc or clang." \
        "  On Debian and Ubuntu: apt install gcc libc6-dev"
}

# Everything that the installation is made of, in one line.
fingerprint() {
    (cd "$root" && echo "$root $1" && cat pyproject.toml build_ffi.py build_stubs.py constraints.txt \
        scripts/environment.sh && find aioacl \( -name '*.[ch]' -o -name '*.inc' \) -type f -print -exec cat {} +) | cksum
}

up_to_date() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$1" ] && [ -f "$root/aioacl/simulator/libascendcl.so" ] &&
        "$python" -c 'import aioacl' 2>/dev/null
}

pip() {
    "$python" -m pip --disable-pip-version-check --no-input install --quiet -c "$root/constraints.txt" "$@"
}

# Whether the Python of a .venv still starts, which it does not once its folder was moved.
works() {
    "$1" -c 'import sys, pip; assert sys.version_info >= (3, 11)' 2>/dev/null
}

# environment EXTRA: .venv has aioacl, built from this tree, and the packages of the extra (or of none: "").
# What was installed with an extra stays good without one.
environment() {
    for extra in "$1" test; do
        if up_to_date "$(fingerprint "$extra")"; then
            return 0
        fi
    done
    if works "$python"; then
        found=$python
    else
        find_python
    fi
    find_compiler
    if [ "$found" != "$python" ]; then
        echo "making .venv with $found" >&2
        "$found" -m venv --clear "$root/.venv" || die "$found cannot make $root/.venv."
    fi
    echo "building and installing aioacl into .venv (a minute or two, the first time)" >&2
    rm -f "$stamp"
    pip setuptools cffi
    pip --no-build-isolation --editable "$root${1:+[$1]}" || die "The build failed; the reason is above."
    fingerprint "$1" >"$stamp"
}

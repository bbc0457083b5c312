# Sourced by ./demo and ./test, which set `root`: makes or refreshes .venv. POSIX sh; safe to run again and again.
#
# PYTHON=/path/to/python chooses the interpreter of a new .venv, CC the compiler.

python="$root/.venv/bin/python"
installed="$root/.venv/aioacl-installed"
lock="$root/build/environment.lock"
newline='
'

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Prints what a Python lacks for the build, and nothing if it is suitable.
lacking() {
    "$1" - <<'PYTHON' 2>/dev/null || echo "it does not start"
import os, sys, sysconfig
try:
    import ensurepip, venv
except ImportError:
    venv = None
if sys.version_info < (3, 11):
    print("it is Python %d.%d, expected 3.11 or later" % sys.version_info[:2])
elif sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("it is a free-threaded build, expected one with the GIL")
elif not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("its C headers are missing (on Debian and Ubuntu: apt install python3-dev)")
elif venv is None:
    print("its venv module is missing (on Debian and Ubuntu: apt install python3-venv)")
PYTHON
}

# Sets `found` to the first suitable Python. 3.15 is last, because onnxruntime has no release for it yet.
find_python() {
    reasons=
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.15}; do
        found=$(command -v "$name") || continue
        reason=$(lacking "$found")
        [ -n "$reason" ] || return 0
        reasons="$reasons
  $found: $reason"
    done
    die "aioacl needs Python 3.11 or later, with its C headers." "${reasons:-  no python3 is in PATH}"
}

# setuptools calls $CC, or the compiler that Python was built with, which may not be installed.
find_compiler() {
    wanted=${CC:-$("$found" -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])' 2>/dev/null)}
    for name in "${wanted%% *}" cc gcc clang; do
        if command -v "$name" >/dev/null; then
            [ "$name" = "${wanted%% *}" ] || export CC="$name"
            return 0
        fi
    done
    die "aioacl needs a C compiler, and none is in PATH: no ${wanted%% *}, cc, gcc or clang." \
        "  On Debian and Ubuntu: apt install gcc libc6-dev"
}

# Prints the id of a process and of the processes that it and its children have started.
family() {
    echo "$1"
    for each in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        family "$each"
    done
}

# Ends the command that runs, with its children: pip and venv do not end theirs.
end_child() {
    [ -z "$child" ] || kill $(family "$child") 2>/dev/null || :
}

# Runs a command, and ends it before a signal ends this shell. A shell handles no signal while a command runs in the
# foreground. A command that outlives the shell would keep the lock. A command in the background ignores SIGINT, so
# SIGTERM ends it.
attended() {
    caught='' child=''
    for signal in HUP INT QUIT TERM; do
        trap "caught=$signal; end_child" "$signal"
    done
    "$@" &
    child=$!
    [ -z "$caught" ] || end_child
    status=0
    { wait "$child" || status=$?; } 2>/dev/null # where the shell would report how the command ended
    [ -z "$caught" ] || wait "$child" 2>/dev/null || :
    trap - HUP INT QUIT TERM
    if [ -n "$caught" ]; then
        kill -s "$caught" $$
        exit 1 # bash ignores SIGQUIT
    fi
    return "$status"
}

# Runs a command in the clone.
in_clone() {
    cd "$root" && exec "$@"
}

# A checksum of EXTRA and of the files that the installation depends on. The build itself finds changed sources.
installation() {
    (cd "$root" && echo "$root $1" && cat pyproject.toml constraints.txt scripts/environment.sh) | cksum
}

# Whether .venv has an editable installation of aioacl with the packages of the extra.
is_installed() {
    [ -f "$installed" ] && [ "$(cat "$installed")" = "$(installation "$1")" ] && works "$python"
}

# Compiles and links what has changed, into the package's folders. Without a change this takes a second.
build() {
    attended in_clone "$python" -W ignore -c 'import setuptools; setuptools.setup()' --quiet build_ext --inplace ||
        die "The build failed; the reason is above."
}

# The extension is built without isolation. With a constraint for isolated builds, newer releases of pip refuse that.
pip() {
    attended env -u PIP_BUILD_CONSTRAINT "$python" -m pip --disable-pip-version-check --no-input \
        install --quiet -c "$root/constraints.txt" "$@"
}

# Whether .venv's Python starts. It does not start after the folder was moved.
works() {
    "$1" -c 'import sys, pip; assert sys.version_info >= (3, 11)' 2>/dev/null
}

# Prints a step of `install`, with the seconds since the start, so that ./demo and ./test do not seem to hang.
step() {
    echo "[$1/4, $(($(date +%s) - began)) s] $2" >&2
}

# Makes .venv, unless it works, and installs aioacl with the packages of the extra. The libraries are built before pip
# is called, because pip hides the progress of a build.
install() {
    began=$(date +%s)
    if works "$python"; then
        found=$python
    else
        find_python
    fi
    find_compiler
    if [ "$found" != "$python" ]; then
        step 1 "making .venv with $found"
        attended "$found" -m venv --clear "$root/.venv" || die "$found cannot make $root/.venv."
    fi
    rm -f "$installed"
    step 2 "installing the requirements of the build: setuptools, cffi, ninja"
    pip setuptools cffi ninja
    step 3 "compiling $(find "$root/aioacl" "$root/simulator" -name '*.c' | wc -l) C files (one to four minutes, the first time)"
    build
    step 4 "installing aioacl${1:+[$1]} into .venv"
    # By default setuptools installs an import hook, which type checkers cannot follow. In this mode it installs a path.
    pip --no-build-isolation --config-settings editable_mode=compat --editable "$root${1:+[$1]}" ||
        die "The build failed; the reason is above."
    installation "$1" >"$installed"
}

# Prints the packages of an extra that .venv lacks.
missing_packages() {
    "$python" - "$root/pyproject.toml" "$1" <<'PYTHON'
import re, sys, tomllib
from importlib import metadata
def is_installed(requirement):
    try:
        return metadata.version(re.match(r"[\w.-]+", requirement)[0]) is not None
    except metadata.PackageNotFoundError:
        return False
with open(sys.argv[1], "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*(each for each in extras[sys.argv[2]] if not is_installed(each)))
PYTHON
}

# Installs the packages of an extra, if that is possible. Without a network, the caller continues without them.
try_to_add() {
    missing=$(missing_packages "$1")
    [ -n "$missing" ] || return 0
    echo "installing the packages of aioacl[$1] into .venv: $missing" >&2
    pip --retries 1 --timeout 15 $missing 2>"$root/build/$1.log" ||
        echo "They could not be installed: build/$1.log has the reason. What needs them is left out." >&2
}

# setuptools replaces $NAME and {NAME} in paths, venv refuses a colon, and ninja a line break. Each would fail late.
must_build_in_path() {
    case $root in
        *['${}:'"$newline"]*)
            die "expected a path without '\$', '{', '}', ':' and line breaks, which the tools of the build cannot handle," \
                "got $root." "  Move the clone to a folder with another path."
            ;;
    esac
}

# Python decodes the paths of an installation by the locale, also in its UTF-8 mode. If it cannot decode the path of
# .venv, it does not start.
must_decode_path() {
    case $root in
        *[!\ -~]*) ;;
        *) return 0 ;;
    esac
    charmap=$(locale charmap 2>/dev/null) || return 0
    [ "$charmap" = UTF-8 ] || die "expected a UTF-8 locale for the path $root, got one of $charmap." \
        "  Set LC_ALL=C.UTF-8, or move the clone to a path of ASCII characters."
}

# Without this check, each tool that cannot write would report an error of its own.
must_be_writable() {
    for each in "$root" "$root/build" "$lock" "$root/.venv" "$root/aioacl"; do
        [ ! -e "$each" ] || [ -w "$each" ] ||
            die "expected a clone that ./demo and ./test may write to, because they build and install in it," \
                "got $each, which this user may not write to." \
                "  Use a clone of your own: clone the repository to a folder that you may write to."
    done
}

# Waits until no other start builds in this clone, if flock (util-linux) is installed.
wait_for_lock() {
    exec 9>"$lock"
    if ! command -v flock >/dev/null || flock -n 9; then
        return 0
    fi
    echo "waiting for another ./demo or ./test that builds in this clone (it holds $lock)" >&2
    attended flock 9
}

# environment EXTRA [OPTIONAL]: makes sure that .venv has aioacl, built from this tree, and the packages of the extra
# ("": none). An installation with an extra is also used if no extra is requested. After an edit of C sources only these
# are built. The packages of the extra OPTIONAL are installed if that is possible.
environment() {
    must_build_in_path
    must_decode_path
    must_be_writable
    mkdir -p "$root/build"
    wait_for_lock
    if is_installed "$1" || is_installed dev; then
        found=$python
        find_compiler
        build
    else
        install "$1"
    fi
    [ -z "${2-}" ] || try_to_add "$2"
    exec 9>&-
}

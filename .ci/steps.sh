# Sourced by .ci/run and .ci/slow: steps with a title, a time and a status, and the table at the end.
#
# A step that fails does not end the run. `finish` prints the table and the last lines of each failed step. The run also
# fails if more than two tests are unstable, which means that they failed and then passed alone.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1
export PIP_BUILD_CONSTRAINT="$PWD/constraints.txt"
unset AIOACL_LIBRARY AIOACL_PLAIN_AWAITS AIOACL_RECORDER AIOACL_STRICT AIOACL_SIM_WAIT
unset PYTEST_ADDOPTS PYTEST_PLUGINS CFLAGS CPPFLAGS LDFLAGS
unset PYTHONDONTWRITEBYTECODE # with it, each process that the tests start compiles the package again

python="$PWD/.venv/bin/python" bin="$PWD/.venv/bin"
top=$(mktemp -d)
scratch=$top
failures=$top/failures
unstable=$top/unstable
readonly unstable_at_most=2
trap 'rm -rf "$top"' EXIT
failed=0
table=

begin() {
    printf '\n--- %s\n' "$1"
    started=$SECONDS
}

end() {
    local outcome=ok
    if [ "$2" -ne 0 ]; then
        outcome=FAILED
        failed=1
        { printf '\n--- %s, its last lines\n' "$1"; tail -n 40 "$scratch/log"; } >>"$failures"
    fi
    printf -- '--- %s: %s, %d s\n' "$1" "$outcome" $((SECONDS - started))
    table+=$(printf '%-45s %6s %4d s' "$1" "$outcome" $((SECONDS - started)))$'\n'
}

# loud TITLE COMMAND...: a step whose output is always shown.
loud() {
    local title=$1 status=0
    shift
    begin "$title"
    set +e
    (set -e; "$@") 2>&1 | tee "$scratch/log"
    status=${PIPESTATUS[0]}
    set -e
    end "$title" "$status"
}

# quiet TITLE COMMAND...: a step whose output is shown if it fails.
quiet() {
    local title=$1 status=0
    shift
    begin "$title"
    set +e # not `|| status=$?`: with `||`, a function continues after a command that fails
    (set -e; "$@") >"$scratch/log" 2>&1
    status=$?
    set -e
    [ "$status" -eq 0 ] || cat "$scratch/log"
    end "$title" "$status"
}

# aside NAME COMMAND...: runs steps in the background, in a separate shell. `rejoin NAME` waits for these steps and
# shows their output.
aside() {
    local name=$1
    shift
    mkdir "$top/$name"
    (
        table= failed=0 scratch=$top/$name failures=$top/$name/failures
        "$@"
        printf '%s' "$table" >"$scratch/table"
        exit "$failed"
    ) >"$top/$name.out" 2>&1 &
    eval "beside_$name=$!"
}

rejoin() {
    local name=$1 process
    eval "process=\$beside_$name"
    wait "$process" || failed=1
    cat "$top/$name.out"
    [ -f "$top/$name/table" ] || echo "the steps '$name' ended early"
    table+=$(cat "$top/$name/table" 2>/dev/null || true)$'\n'
    cat "$top/$name/failures" >>"$failures" 2>/dev/null || true
}

# tested COMMAND...: runs pytest. Each test that fails runs once more, alone.
tested() {
    "$python" .ci/again.py "$unstable" "$@"
}

# Prints a row for each unstable test. They are failures if they are too many.
unstable_tests() {
    [ -s "$unstable" ] || return 0
    sed 's/^/unstable  /' "$unstable"
    [ "$(wc -l <"$unstable")" -le "$unstable_at_most" ] || { echo "FAILED: more than $unstable_at_most tests are unstable"; failed=1; }
}

# finish: prints the table and the failures, and exits with the status.
finish() {
    printf '\n%s' "$table"
    unstable_tests
    printf '%d s in all\n' "$SECONDS"
    [ "$failed" -eq 0 ] || cat "$failures" 2>/dev/null || true
    exit "$failed"
}

# Makes .venv with the packages that the tests need, and builds the libraries, as ./test does.
build() {
    (root=$PWD && . scripts/environment.sh && environment dev)
}

sanitizes() {
    echo 'int main(void) { return 0; }' >"$scratch/empty.c"
    "$1" -fsanitize=address,undefined "$scratch/empty.c" -o "$scratch/empty" &&
        "$1" -fsanitize=thread "$scratch/empty.c" -o "$scratch/empty"
}

# Installs clang with its sanitizers, spin and valgrind, from Debian packages, if they are missing.
debian_packages() {
    local missing=()
    command -v clang >/dev/null && sanitizes clang || missing+=(clang libclang-rt-dev)
    command -v spin >/dev/null || missing+=(spin)
    command -v valgrind >/dev/null || missing+=(valgrind)
    [ "${#missing[@]}" -eq 0 ] || { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; }
}

# Installs the linters from PyPI.
python_packages() {
    "$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["lint"], sep="\n")' \
        >"$scratch/lint"
    "$python" -m pip install --quiet -c constraints.txt --requirement "$scratch/lint"
}

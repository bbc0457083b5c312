#!/bin/sh
# Sends requests of one digit for some seconds over 64 connections. Needs wrk.
#
#     examples/service/load.sh [URL] [SECONDS]
set -eu
url=${1:-http://127.0.0.1:8000}
seconds=${2:-10}
script=$(mktemp)
trap 'rm -f "$script"' EXIT
cat > "$script" <<'LUA'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.body = string.rep("\0", 256)
LUA
wrk --threads 2 --connections 64 --duration "${seconds}s" --latency --script "$script" "$url/classify"

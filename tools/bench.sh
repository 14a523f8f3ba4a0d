#!/usr/bin/env bash
# bench.sh - builds the benchmarks and runs them, or those named, one after the other.
#
#   tools/bench.sh [NAME ...] [-- options for each, such as --quick]
#
# Each directory bench/<name> has a run.py, which compares with a peer or a limit in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
build=build/bench

names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    names+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ ${#names[@]} -gt 0 ] || for run in bench/*/run.py; do names+=("$(basename "$(dirname "$run")")"); done

mkdir -p build
{
    [ -e $build/build.ninja ] || meson setup $build -Dbench=true -Dtests=disabled -Dpython=disabled -Db_lto=true
    meson compile -C $build
} >build/bench.log 2>&1 || { tail -n 25 build/bench.log >&2; exit 1; }

for name in "${names[@]}"; do
    printf '\n=== %s\n\n' "$name"
    case $name in
    fabric) .venv/bin/python bench/fabric/run.py --godwit $build/bench/pairs-godwit "$@" ;;
    *) .venv/bin/python "bench/$name/run.py" "$@" ;;
    esac
done

#!/usr/bin/env bash
# sim.sh - builds the parameter protocol's simulation and runs one of its long programs.
#
#   tools/sim.sh scale [options]       what an access costs on 8 to 1,024 nodes; writes docs/scale.csv and .svg
#   tools/sim.sh campaign [options]    1,000,000 random jobs on all processors
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
build=build/sim
what=${1:?scale or campaign}
shift

mkdir -p build
{
    [ -e $build/build.ninja ] || meson setup $build -Dtests=enabled -Dpython=disabled -Dbench=false --buildtype=release
    meson compile -C $build scale protocol
} >build/sim.log 2>&1 || { tail -n 25 build/sim.log >&2; exit 1; }

case $what in
scale)
    status=0
    $build/tests/sim/scale --csv docs/scale.csv "$@" || status=$?
    python tests/sim/plot_scale.py docs/scale.csv docs/scale.svg
    exit $status
    ;;
campaign) exec python tests/sim/campaign.py $build/tests/sim/protocol "$@" ;;
*) echo "sim.sh: scale or campaign, not $what" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# install.sh - puts Godwit below a prefix, and takes it away again.
#
#   tools/install.sh install|uninstall PREFIX [DESTDIR]
#
# Removing asks meson for the same installation in an empty directory and removes
# those names, so it needs no record and works after `make clean`.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
what=$1 prefix=$2 destdir=${3:-}
build=build/install

unset DESTDIR # given as an argument; meson would add it a second time
mkdir -p build
{
    meson setup $([ ! -e $build/build.ninja ] || echo --reconfigure) $build --prefix "$prefix" -Dtests=disabled -Db_lto=true &&
        meson compile -C $build
} >build/install.log 2>&1 || { tail -n 25 build/install.log >&2; exit 1; }

case $what in
install)
    meson install --quiet --no-rebuild -C $build ${destdir:+--destdir "$destdir"}
    # So that the loader finds the library; a staging directory is no place of the loader's.
    [ -n "$destdir" ] || [ "$(id -u)" != 0 ] || ldconfig
    echo "installed below $destdir$prefix:"
    grep -v '^#' $build/meson-logs/install-log.txt | while IFS= read -r name; do
        [ -d "$name" ] || printf '  %s\n' "${name%/*}"
    done | sort -u
    ;;
uninstall)
    names=$PWD/build/uninstall
    rm -rf "$names"
    meson install --quiet --no-rebuild -C $build --destdir "$names"
    (cd "$names" && find . ! -type d -print0) | while IFS= read -r -d '' name; do
        rm -f "$destdir/${name#./}"
    done
    # Only directories that carry our name; /usr/local/lib was there before us.
    (cd "$names" && find . -depth -type d -path '*godwit*' -print0) | while IFS= read -r -d '' name; do
        rm -rf "$destdir/${name#./}/__pycache__"
        rmdir --ignore-fail-on-non-empty "$destdir/${name#./}" 2>/dev/null || true
    done
    rm -rf "$names"
    echo "removed from $destdir$prefix"
    ;;
*)
    echo "usage: tools/install.sh install|uninstall PREFIX [DESTDIR]" >&2
    exit 2
    ;;
esac

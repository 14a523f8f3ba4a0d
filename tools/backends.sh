#!/usr/bin/env bash
# backends.sh - Debian's BLAS libraries, side by side, for `godwit backend`.
#
#   tools/backends.sh install    OpenBLAS (serial, pthread, openmp), BLIS, ATLAS, reference BLAS
#   tools/backends.sh remove     take away what `install` brought, and nothing else
#   tools/backends.sh show       what is recorded
#
# Debian lets these libraries stand side by side and chooses one of them as the
# machine's libblas.so.3 and liblapack.so.3 (update-alternatives).  Programs that
# have nothing to do with Godwit, Debian's PyTorch among them, use that choice, so it
# is held still: it is pinned before anything is installed, and `remove` puts it back
# to how it was, automatic or by hand.  The record of both is kept in the state
# directory below, because the packages belong to the machine and not to a source tree.
set -euo pipefail

state=${GODWIT_BACKENDS_STATE:-/var/lib/godwit}
record=$state/backends
packages=(libblas3 libatlas3-base
    libopenblas0-serial libopenblas0-pthread libopenblas0-openmp
    libblis4-serial libblis4-pthread libblis4-openmp)

say() { printf '%s\n' "backends: $*"; }
die() { say "$@" >&2; exit 1; }

installed() {
    case $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) in
    ?i*) return 0 ;;
    *) return 1 ;;
    esac
}

# "name mode path" of every choice that these packages take part in.
choices() { update-alternatives --get-selections | grep -E '^lib(blas|lapack)[0-9]*\.so' || true; }

apt() { env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }

need_root() {
    [ "$(id -u)" = 0 ] || die "only root can $1 Debian packages; please run this with sudo"
}

install() {
    local package lack=() before name mode path
    for package in "${packages[@]}"; do
        installed "$package" || lack+=("$package")
    done
    if [ ${#lack[@]} = 0 ]; then
        say "all there: ${packages[*]}"
        return
    fi
    need_root install
    mkdir -p "$state"
    if [ ! -e "$record" ]; then
        choices | sed 's/^/choice /' >"$record.new"
        mv "$record.new" "$record"
    fi
    # A choice made by hand is not touched by installing.
    choices | while read -r name mode path; do
        update-alternatives --set "$name" "$path" >/dev/null
    done
    before=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^.i. //p' | sort)
    apt update >/dev/null
    apt install --no-install-recommends "${lack[@]}"
    # Also what came along with them.
    comm -13 <(printf '%s\n' "$before") \
        <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^.i. //p' | sort) |
        sed 's/^/package /' >>"$record"
    say "installed ${lack[*]}"
    say "the machine's own choice stays: $(choices | awk '{printf "%s%s", sep, $3; sep = ", "}')"
}

remove() {
    local kind name mode path names=()
    [ -e "$record" ] || { say "nothing to remove: \`install\` was not run, or was undone"; return; }
    need_root remove
    while read -r kind name _; do
        if [ "$kind" = package ] && installed "$name"; then
            names+=("$name")
        fi
    done <"$record"
    if [ ${#names[@]} -gt 0 ]; then
        # Nothing but our own may go: what others installed meanwhile may need these.
        if apt -s remove "${names[@]}" | sed -n 's/^Remv \([^ ]*\).*/\1/p' | sort -u |
            comm -13 <(printf '%s\n' "${names[@]}" | sort -u) - | grep .; then
            die "the packages above came later and need what would be removed; remove them first"
        fi
        apt remove "${names[@]}"
    fi
    while read -r kind name mode path; do
        [ "$kind" = choice ] || continue
        if [ "$mode" = auto ]; then
            update-alternatives --auto "$name" >/dev/null
        elif [ -e "$path" ]; then
            update-alternatives --set "$name" "$path" >/dev/null
        fi
    done <"$record"
    rm -f "$record"
    say "removed ${names[*]:-nothing}; the choice is as it was before"
}

command -v dpkg-query >/dev/null || die "this is not Debian: install the libraries by your system's own means"
case ${1:-} in
install) install ;;
remove) remove ;;
show) cat "$record" 2>/dev/null || say "nothing is recorded" ;;
*) die "usage: tools/backends.sh install|remove|show" ;;
esac

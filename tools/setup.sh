#!/usr/bin/env bash
# setup.sh - brings this machine to where Godwit can be built, tested or formatted.
#
#   tools/setup.sh build     compiler, both MPIs, .venv, and Godwit installed into it
#   tools/setup.sh test      the same, and what the tests need
#   tools/setup.sh venv      compiler and .venv only; Godwit itself is not built
#   tools/setup.sh format    clang-format
#
# It looks at the machine itself (dpkg's records, the packages in .venv, the sources'
# contents), not at what an earlier run believed.  When nothing is missing it takes
# a second and needs no network.  Debian packages are installed only by root;
# anybody else is told which ones are missing.
#
#   PYTHON=python3.12   the interpreter to make .venv with (3.11 or newer)
#   APT=no              leave Debian packages alone; the caller knows better
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
venv=$root/.venv
logs=$root/build/setup-logs
level=${1:-build}

say() { printf '%s\n' "setup: $*"; }
die() { say "$@" >&2; exit 1; }

# step TEXT COMMAND...: one line for one long step.  The command's output goes to a
# log, whose end is shown only when the command fails.
step() {
    local text=$1 log started=$SECONDS
    shift
    log=$logs/$(date +%H%M%S)-${text//[^a-zA-Z0-9]/-}
    log=${log:0:$((${#logs} + 40))}.log
    printf 'setup: %s ... ' "$text"
    if "$@" >"$log" 2>&1 </dev/null; then
        printf '%s s\n' $((SECONDS - started))
    else
        printf 'failed after %s s\n' $((SECONDS - started))
        tail -n 25 "$log" | sed 's/^/    /'
        say "the whole log: $log"
        return 1
    fi
}

# side_by_side COMMAND ARGUMENT WORD...: COMMAND WORD ARGUMENT for all words at the same time.
side_by_side() {
    local command=$1 argument=$2 word pid pids=() failed=0
    shift 2
    for word in "$@"; do
        "$command" "$word" "$argument" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    return $failed
}

# --- Debian packages ---------------------------------------------------------------------

have_dpkg() { [ "${APT:-yes}" != no ] && command -v dpkg-query >/dev/null; }

# Those of the packages named that are not installed.
missing() {
    local package
    have_dpkg || return 0
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) in
        ?i*) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

apt_updated=no
apt_install() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
    if [ $apt_updated = no ]; then
        step "reading the list of Debian packages" "${apt[@]}" update || return
        apt_updated=yes
    fi
    step "installing Debian packages: $*" "${apt[@]}" install --no-install-recommends "$@"
}

# Without these nothing works.
require() {
    local lack
    lack=$(missing "$@")
    [ -n "$lack" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        say "Debian packages are missing and only root can install them.  Please run"
        say "    sudo apt-get install $lack"
        die "and then this again (or give APT=no if you have them in another form)."
    fi
    # shellcheck disable=SC2086 # a list of names
    apt_install $lack || die "cannot go on without: $lack"
}

# Without these something is left out.  What could not be had is remembered until
# `make clean`, so that every further run does not ask the network again.
wish() {
    local why=$1 lack given_up
    shift
    lack=$(missing "$@")
    [ -n "$lack" ] || return 0
    given_up="$root/build/given-up-$1"
    if [ "$(id -u)" != 0 ]; then
        say "note: $why: not installed (as root: apt-get install ${lack% })"
    elif [ -e "$given_up" ]; then
        say "note: $why: could not be installed earlier (make clean, to try again)"
    else
        # shellcheck disable=SC2086
        apt_install $lack && return
        touch "$given_up"
        say "warning: going on without $why"
    fi
}

# --- .venv -------------------------------------------------------------------------------

# Can this interpreter make a .venv and compile extension modules?
suitable() {
    "$1" - <<'PY' >/dev/null 2>&1
import sys, os, sysconfig, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not (sys.version_info >= (3, 11) and os.path.exists(header)))
PY
}

# The plain python3 comes first: PyTorch is not there for every newer one.
find_python() {
    local python
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        if suitable "$python"; then
            command -v "$python"
            return
        fi
    done
    return 1
}

# A .venv is kept if its interpreter runs, its pip was installed to the end, and it was made
# at this place (scripts in a moved or copied one would run another's interpreter).
venv_is_sound() {
    local shebang_dir
    [ -x "$venv/bin/python" ] && [ -e "$venv/bin/pip" ] || return
    [ -z "$(unmet pip)" ] || return
    shebang_dir=$(sed -n -e '1s|^#!\(/.*\)/python[0-9.]*$|\1|p' \
        -e "2s|^'''exec' \"\\{0,1\\}\\(/.*\\)/python[0-9.]*\"\\{0,1\\} .*|\\1|p" "$venv/bin/pip")
    [ "$shebang_dir" -ef "$venv/bin" ]
}

# unmet PIN...: those of the pins (name==version, or a name) that .venv does not hold.  pip
# writes INSTALLER last: without it the package is half there, and is made to look absent.
unmet() {
    "$venv/bin/python" - "$@" <<'PY'
import shutil, sys
from importlib import metadata

for pin in sys.argv[1:]:
    name, _, version = pin.partition("==")
    try:
        found = metadata.distribution(name)
        if found.read_text("INSTALLER") is None:
            shutil.rmtree(found._path)
        elif version in ("", found.version.partition("+")[0]):
            continue
    except metadata.PackageNotFoundError:
        pass
    print(pin)
PY
}

pins() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

pip_install() {
    local text=$1
    shift
    step "$text" "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" ||
        die "pip could not install what is needed (is there a network?)"
}

make_venv() {
    local python lack
    if ! { [ -d "$venv" ] && venv_is_sound; }; then
        python=$(find_python) || {
            require python3 python3-venv python3-dev
            python=$(find_python) || die "Python 3.11 or newer with venv and headers is needed" \
                "(tried ${PYTHON:-python3 and newer ones on PATH}; name one with PYTHON=...)"
        }
        step "making .venv with $("$python" --version) ($python)" "$python" -m venv --clear "$venv" ||
            die "cannot make .venv"
    fi

    # shellcheck disable=SC2046 # lists of pins
    lack=$(unmet $(pins requirements-torch.txt))
    [ -z "$lack" ] || pip_install "installing $lack into .venv (large)" "$lack"

    # shellcheck disable=SC2046
    lack=$(unmet $(pins "$@"))
    # shellcheck disable=SC2086
    [ -z "$lack" ] || pip_install "installing into .venv:$(printf ' %s' $lack)" $lack
}

# --- Godwit itself -------------------------------------------------------------------------

# One number for everything the installed package is made from.
fingerprint() {
    {
        "$venv/bin/python" -VV
        command -v cc mpicc.openmpi mpicc.mpich || true
        find . \( -path ./build -o -path ./.venv -o -path ./.git -o -name __pycache__ \) -prune -o \
            -type f \( -path './include/*' -o -path './src/*' -o -path './python/*' -o -name 'meson.*' \
            -o -path ./pyproject.toml -o -path ./VERSION -o -path ./README.md -o -path './LICENSE*' \) \
            ! -name '*_test.c' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -d' ' -f1
}

install_godwit() {
    local now made_for stamp=$venv/.godwit-fingerprint
    now=$(fingerprint)
    if [ -x "$venv/bin/godwit" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ] && [ -z "$(unmet godwit)" ]; then
        return
    fi
    rm -f "$stamp"
    # A build directory remembers where it lies and for which Python; another's is of no use.
    made_for="$root $("$venv/bin/python" -VV)"
    [ "$(cat build/wheel.made-for 2>/dev/null)" = "$made_for" ] || rm -rf build/wheel
    printf '%s\n' "$made_for" >build/wheel.made-for
    step "building Godwit and installing it into .venv" env PATH="$venv/bin:$PATH" \
        "$venv/bin/python" -m pip install --disable-pip-version-check --no-index \
        --no-build-isolation --no-deps --force-reinstall --config-settings=build-dir=build/wheel . ||
        die "the build failed"
    printf '%s\n' "$now" >"$stamp"
}

# --- mpi4py, for the tests -------------------------------------------------------------------

mpi4py=mpi4py==4.0.3

# Under build/, because in .venv there could be one only.  Without optimisation, since its one large file takes
# minutes otherwise; without pip's cache, which does not know for which MPI a wheel was built.
compile_mpi4py() {
    local dir=$root/build/mpi4py-$1
    rm -rf "$dir"
    env "MPICC=mpicc.$1" CFLAGS="-O0 -g0" "$venv/bin/python" -m pip install --disable-pip-version-check \
        --no-cache-dir --no-binary mpi4py --no-deps --target "$dir" "$mpi4py" && printf '%s\n' "$2" >"$dir/made-for"
}

# build_mpi4py MPI...: for each of them that is there, at the same time.
build_mpi4py() {
    local kind kinds=() made_for
    made_for="$mpi4py $("$venv/bin/python" -VV)"
    for kind in "$@"; do
        command -v "mpicc.$kind" >/dev/null || continue
        [ "$(cat "$root/build/mpi4py-$kind/made-for" 2>/dev/null)" != "$made_for" ] || continue
        if [ -e "$root/build/given-up-mpi4py-$kind" ]; then
            say "note: mpi4py for $kind: could not be built earlier (make clean, to try again)"
        else
            kinds+=("$kind")
        fi
    done
    [ ${#kinds[@]} -gt 0 ] || return 0
    step "building mpi4py for ${kinds[*]}" side_by_side compile_mpi4py "$made_for" "${kinds[@]}" || true
    for kind in "${kinds[@]}"; do
        [ ! -e "$root/build/mpi4py-$kind/made-for" ] || continue
        touch "$root/build/given-up-mpi4py-$kind"
        say "warning: going on without mpi4py for $kind; some tests will be skipped"
    done
}

# --- what is asked for -----------------------------------------------------------------------

mkdir -p "$logs"
# One at a time: two set-ups in one tree would install into the same .venv.
exec 9>"$root/build/setup.lock"
flock -n 9 || { say "waiting for another set-up of this tree to end"; flock 9; }

compiler=(gcc libc6-dev pkg-config)
mpis() {
    wish "Open MPI" openmpi-bin libopenmpi-dev
    wish "MPICH" mpich libmpich-dev
}

case $level in
venv)
    require "${compiler[@]}"
    make_venv requirements.txt
    ;;
build)
    require "${compiler[@]}"
    mpis
    make_venv requirements.txt
    install_godwit
    ;;
test)
    require "${compiler[@]}" libcmocka-dev clang
    require "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" # libFuzzer, sanitizers
    mpis
    # Through its own script, which keeps the machine's choice of a BLAS as it is.
    if have_dpkg && [ "$(id -u)" = 0 ] && [ ! -e "$root/build/given-up-backends" ]; then
        tools/backends.sh install >"$logs/backends.log" 2>&1 || {
            touch "$root/build/given-up-backends"
            say "warning: going on without Debian's BLAS libraries (see $logs/backends.log)"
        }
    fi
    wish "Debian's PyTorch" python3-torch python3-numpy python3-pytest python3-hypothesis
    make_venv requirements.txt requirements-test.txt
    build_mpi4py openmpi mpich
    install_godwit
    ;;
format)
    require clang-format
    ;;
*)
    die "usage: tools/setup.sh build|test|venv|format"
    ;;
esac

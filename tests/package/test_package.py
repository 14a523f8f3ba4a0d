"""What a stranger gets: the names a library shows, its headers, its pkg-config file, `make install`."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(sysconfig.get_path("platlib")) / "godwit"
HEADERS = sorted(path.name for path in (ROOT / "include" / "godwit").glob("*.h"))
VERSION = (ROOT / "VERSION").read_text().strip()

PROGRAM = (
    "".join(f"#include <godwit/{name}>\n" for name in HEADERS)
    + """
#include <stdio.h>

int main(void)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gw_world_info info = {.size_bytes = sizeof info};
    gw_world *world = NULL;

    options.size = 1;
    if (gw_world_join(&options, &world) < 0 || gw_world_get_info(world, &info) < 0)
        return 1;
    printf("rank %d of %d\\n", info.rank, info.size);
    gw_world_close(world);
    return 0;
}
"""
)


def output_of(*command, **more) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=100, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def exported(library: Path) -> set[str]:
    lines = output_of("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def compile_and_run(where: Path, pkg_config_dir: Path) -> str:
    """Build a small program as a stranger would, knowing only the pkg-config file, and run it."""
    (where / "program.c").write_text(PROGRAM)
    env = os.environ | {"PKG_CONFIG_PATH": str(pkg_config_dir)}
    flags = output_of("pkg-config", "--cflags", "--libs", "godwit", env=env)
    lib_dir = output_of("pkg-config", "--variable=libdir", "godwit", env=env).strip().replace("\\", "")
    output_of("sh", "-c", f"cc -std=c11 -Wall -Wextra -Wpedantic -Werror program.c -o program {flags.strip()}", cwd=where)
    return output_of(where / "program", env=os.environ | {"LD_LIBRARY_PATH": lib_dir})


def only(paths) -> Path:
    paths = list(paths)
    assert len(paths) == 1, paths
    return paths[0]


def test_the_library_shows_names_that_begin_with_gw_and_no_others():
    names = exported(only(PACKAGE.rglob("libgodwit.so")))
    assert "gw_world_join" in names
    assert {name for name in names if not name.startswith("gw_")} == set()


def test_every_function_of_the_headers_is_in_the_library():
    text = "\n".join((ROOT / "include" / "godwit" / name).read_text() for name in HEADERS)
    declared = set(re.findall(r"^GW_API [^;(]*?\b(gw_\w+)\(", text, re.MULTILINE))
    assert len(declared) > 5
    assert declared - exported(only(PACKAGE.rglob("libgodwit.so"))) == set()


def test_the_extension_module_shows_its_init_function_only():
    names = exported(only(path for path in PACKAGE.glob("_*.so")))
    assert {name for name in names if not name.startswith(("PyInit_", "gw_"))} == set()


def test_nothing_compiled_needs_a_cxx_library():
    compiled = [path for path in PACKAGE.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert compiled
    for path in compiled:
        assert "libstdc++" not in output_of("readelf", "-d", path)


def test_the_tree_has_no_cxx_in_it():
    found = [
        path
        for top in ROOT.iterdir() if top.name not in (".git", ".venv", "build")
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.suffix in (".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".C", ".H")
    ]
    assert found == []


def test_the_package_tells_the_version_of_the_tree():
    told = output_of(sys.executable, "-c", "import importlib.metadata as m; print(m.version('godwit'))", cwd="/")
    assert told.strip() == VERSION


def test_a_c_program_builds_and_runs_with_the_installed_package(tmp_path):
    assert compile_and_run(tmp_path, only(PACKAGE.rglob("godwit.pc")).parent) == "rank 0 of 1\n"


@pytest.mark.timeout(100)
def test_make_install_serves_a_c_program_and_uninstall_leaves_nothing(tmp_path):
    prefix = tmp_path / "prefix"
    output_of(ROOT / "tools" / "install.sh", "install", prefix)
    for name in HEADERS:
        assert (prefix / "include" / "godwit" / name).exists()
    assert compile_and_run(tmp_path, only(prefix.rglob("godwit.pc")).parent) == "rank 0 of 1\n"

    output_of(ROOT / "tools" / "install.sh", "uninstall", prefix)
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []


def test_a_destdir_takes_the_place_of_the_root_directory(tmp_path):
    output_of(ROOT / "tools" / "install.sh", "install", "/opt/godwit", tmp_path)
    assert (tmp_path / "opt" / "godwit" / "include" / "godwit" / "base.h").exists()
    assert not Path("/opt/godwit/include/godwit/base.h").exists()

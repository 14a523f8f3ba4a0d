"""Shows a profile: as a table, as JSON, and as a page for a browser."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import html
import json
from collections import Counter
from typing import Any, Optional

from .profile import Profile
from .records import Function

MOST_ROWS = 40


@functools.lru_cache(maxsize=None)
def _demangler() -> Optional[Any]:
    try:
        library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
        function = library.__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


@functools.lru_cache(maxsize=None)
def readable(name: str) -> str:
    """A C++ name as people write it, without its arguments."""
    base, dot, _ = name.partition(".")
    function = _demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    address = function(base.encode(), None, None, None)
    if not address:
        return name
    try:
        text = ctypes.string_at(address).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return shorten(text)


def shorten(text: str) -> str:
    """Without arguments and template parameters."""
    out, depth = [], 0
    for i, character in enumerate(text):
        if character in "<(" and not text[:i].endswith("operator"):
            if character == "(" and text.startswith("(anonymous namespace)", i) and depth == 0:
                out.append("(anonymous namespace)")
            depth += 1
        elif character in ">)" and depth > 0:
            depth -= 1
        elif depth == 0:
            out.append(character)
    name = "".join(out).replace(" const", "").strip()
    if " " in name and "operator" not in name:  # a return type
        name = name.replace("(anonymous namespace)", "\0").rpartition(" ")[2].replace("\0", "(anonymous namespace)")
    return name or text


def callers_of(function: Function, most: int = 3) -> str:
    """`libtorch_cpu.so 120, libblas.so 3`, and from where."""
    parts = [f"{library} {calls:,}" for library, calls in function.callers.most_common(most)]
    if len(function.callers) > most:
        parts.append(f"{len(function.callers) - most} more")
    return ", ".join(parts)


def notes(result: Profile) -> list[str]:
    """What a reader must know to believe the table."""
    run = result.run
    said = []
    if not run.processes:
        said.append("nothing was recorded: the program never got as far as the dynamic loader (is it static, or setuid?)")
    elif not run.libraries:
        said.append(f"no library whose name begins with {' or '.join(result.wanted)} was loaded")
    if result.exit_code < 0:
        said.append(f"the program was ended by signal {-result.exit_code}; what it did until then is shown")
    elif result.exit_code > 0:
        said.append(f"the program ended with code {result.exit_code}")
    lost: Counter = Counter()
    for process in run.processes:
        lost.update(process.lost)
    for what, n in lost.items():
        if n:
            said.append(f"{n:,} {what} more than there is room for: their calls or time are missing")
    if any(process.sampler_gone for process in run.processes):
        said.append("the program handles SIGPROF itself: times are missing (use --no-time)")
    said += run.damaged
    said.append("counted: calls from one library to another by the dynamic linker, and what dlsym returned; not "
                "counted: calls inside a library that do not go through its PLT, calls by other function pointers, and "
                "calls of code compiled with -fno-plt")
    if run.samples:
        said.append(f"time: {run.samples:,} samples of {1e3 * run.sample_s:.1f} ms of processor time, so +- "
                    f"{100 / max(run.samples, 1) ** 0.5:.1f} % of a row that has them all")
    return said


def heading(result: Profile) -> list[str]:
    run = result.run
    programs = Counter("forked" if process.forked_from else "started" for process in run.processes)
    return [
        f"{' '.join(result.command)}",
        f"{len(run.processes)} processes ({programs['started']} started, {programs['forked']} forked), "
        f"{result.wall_s:.2f} s, {result.cpu_s:.2f} s of processor time",
        f"overhead: {100 * result.overhead:.2f} % (counting {1e3 * result.counting_s:.1f} ms at {result.call_ns:.2f} ns "
        f"a call, sampling {1e3 * result.sampling_s:.1f} ms)",
        *(f"library: {path}" for path in run.libraries),
    ]


def table(result: Profile, most: int = MOST_ROWS) -> str:
    run = result.run
    lines = heading(result) + [""]
    rows = run.functions[:most]
    width = max([len(readable(f.name)) for f in rows] + [8])
    width = min(width, 48)
    lines.append(f"{'function':<{width}} {'calls':>14} {'time s':>8} {'time %':>7}  called by (exact), from (sampled)")
    for f in rows:
        seconds = f.total_samples * run.sample_s
        share = 100 * f.total_samples / run.samples if run.samples else 0.0
        sites = [f"{library}: {readable(name)}" for (library, name), _ in f.sites.most_common(2)]
        by = callers_of(f) + (f"  [{'; '.join(sites)}]" if sites else "")
        lines.append(f"{readable(f.name)[:width]:<{width}} {f.calls:>14,} {seconds:>8.2f} {share:>6.1f}%  {by}".rstrip())
    if len(run.functions) > most:
        lines.append(f"... and {len(run.functions) - most} more functions (see the JSON file)")
    if run.samples:
        lines.append("")
        lines.append("where the processor was: " + ", ".join(
            f"{library} {100 * n / run.samples:.1f}%" for library, n in run.inside.most_common(6)))
    lines.append("")
    lines += [f"note: {text}" for text in notes(result)]
    return "\n".join(lines)


def as_dict(result: Profile) -> dict:
    """Everything, for JSON."""
    run = result.run
    return {
        "command": result.command, "libraries": run.libraries, "exit_code": result.exit_code,
        "wall_s": result.wall_s, "cpu_s": result.cpu_s,
        "overhead": {"share": result.overhead, "counting_s": result.counting_s, "sampling_s": result.sampling_s,
                     "call_ns": result.call_ns},
        "samples": run.samples, "sample_s": run.sample_s,
        "processes": [{"pid": p.pid, "parent": p.parent, "forked_from": p.forked_from, "program": p.program,
                       "calls": sum(b.calls for b in p.bindings), "samples": len(p.samples), "lost": p.lost}
                      for p in run.processes],
        "functions": [{
            "library": f.library, "name": f.name, "readable": readable(f.name), "calls": f.calls,
            "callers": dict(f.callers.most_common()),
            "sites": [{"library": library, "function": name, "seen": n} for (library, name), n in f.sites.most_common()],
            "self_s": f.self_samples * run.sample_s, "total_s": f.total_samples * run.sample_s,
        } for f in run.functions],
        "inside": {library: n * run.sample_s for library, n in run.inside.most_common()},
        "notes": notes(result),
    }


def write_json(result: Profile, path: str) -> None:
    with open(path, "w") as file:
        json.dump(as_dict(result), file, indent=1)


# ---- a page ------------------------------------------------------------------------------------

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #222; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .25em .6em; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; } td { border-bottom: 1px solid #ddd; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.f { font-family: ui-monospace, monospace; font-size: 12px; word-break: break-all; }
.bar { background: #d9822b; height: .7em; display: inline-block; } .small { color: #666; font-size: 12px; }
svg text { font: 11px ui-monospace, monospace; pointer-events: none; } rect:hover { stroke: #000; }
"""


def _tree(stacks: Counter) -> dict:
    root: dict = {"name": "all", "n": 0, "below": {}}
    for stack, n in stacks.items():
        root["n"] += n
        at = root
        for frame in stack:
            at = at["below"].setdefault(frame, {"name": frame, "n": 0, "below": {}})
            at["n"] += n
    return root


def flame_svg(stacks: Counter, targets: set[str], width: int = 1160, row: int = 17) -> str:
    """Call stacks as boxes: outermost at the top, as wide as the time spent. Frames of the libraries that were looked
    at are orange."""
    root = _tree(stacks)
    total = root["n"]
    if not total:
        return ""
    boxes: list[str] = []
    deepest = 0

    def draw(node: dict, x: float, depth: int) -> None:
        nonlocal deepest
        wide = width * node["n"] / total
        if wide < 1.5:
            return
        deepest = max(deepest, depth)
        library, _, name = node["name"].partition("`")
        text = readable(name) if name else node["name"]
        if text == "?":
            text = library
        fill = "#f0a04b" if library in targets else "#cfd8dc" if depth else "#eceff1"
        title = html.escape(f"{library} {readable(name) if name else ''}: {100 * node['n'] / total:.1f} %")
        boxes.append(f'<g><title>{title}</title><rect x="{x:.1f}" y="{depth * row}" width="{max(wide - .5, .5):.1f}" '
                     f'height="{row - 1}" fill="{fill}"/>')
        room = int((wide - 6) / 6.7)
        if room >= 3:
            shown = text if len(text) <= room else text[:room - 1] + "\u2026"
            boxes.append(f'<text x="{x + 3:.1f}" y="{depth * row + 12}">{html.escape(shown)}</text>')
        boxes.append("</g>")
        for below in sorted(node["below"].values(), key=lambda one: one["name"]):
            draw(below, x, depth + 1)
            x += width * below["n"] / total

    draw(root, 0.0, 0)
    height = (deepest + 1) * row
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" '
            f'font-family="monospace" font-size="11">{"".join(boxes)}</svg>')


def write_page(result: Profile, path: str) -> None:
    """One file that a browser opens: what the table has, and the call stacks."""
    run = result.run
    rows = []
    most = max((f.total_samples for f in run.functions), default=0)
    for f in run.functions[:200]:
        share = 100 * f.total_samples / run.samples if run.samples else 0.0
        bar = f'<span class="bar" style="width:{120 * f.total_samples / most if most else 0:.0f}px"></span>'
        sites = "".join(f'<div class="small">{html.escape(library)}: {html.escape(readable(name))}</div>'
                        for (library, name), _ in f.sites.most_common(4))
        rows.append(f'<tr><td class="f">{html.escape(readable(f.name))}<div class="small">{html.escape(f.library)}</div>'
                    f'</td><td class="n">{f.calls:,}</td><td class="n">{f.total_samples * run.sample_s:.2f} s<br>'
                    f'{share:.1f} %</td><td>{bar}</td><td>{html.escape(callers_of(f, 6))}{sites}</td></tr>')
    libraries = {path.rpartition("/")[2] for path in run.libraries}
    page = (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>godwit profile</title><style>{_STYLE}</style>'
            f"<h1>{html.escape(heading(result)[0])}</h1>"
            + "".join(f"<div>{html.escape(line)}</div>" for line in heading(result)[1:])
            + '<h2>Functions</h2><table><tr><th>function</th><th class="n">calls</th><th class="n">time</th><th></th>'
              "<th>called by (exact), from (sampled)</th></tr>" + "".join(rows) + "</table>"
            + "<h2>Where the time went</h2><p class=small>Every box is a function, as wide as its share of the processor "
              "time; what it called is below it. Orange: the libraries above.</p>" + flame_svg(run.stacks, libraries)
            + "<h2>Notes</h2><ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in notes(result)) + "</ul></html>")
    with open(path, "w") as file:
        file.write(page)

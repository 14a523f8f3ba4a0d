"""Checkpoints from one process: what save() and load() take and give, and what `godwit checkpoint show` prints."""

import json
import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
    import os, sys
    import numpy as np
    import godwit

    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    kv = godwit.Parameters(100, 8, "float64")
    w = kv.worker()
    keys, values = np.arange(100), np.random.default_rng(7).standard_normal((100, 8))
    w.set(keys, values)
"""


def refused(call):
    """Lines that print what a call is refused with."""
    return f"""
    try:
        {call}
    except godwit.Error as error:
        print(type(error).__name__, error)
    """


def show(directory, *options, expect=0):
    done = subprocess.run([sys.executable, "-m", "godwit", "checkpoint", "show", *options, str(directory)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout if expect == 0 else done.stdout + done.stderr


def part_of(directory):
    return next(directory.glob("save-*/part-00000.safetensors"))


def test_what_is_saved_is_loaded_with_its_meta_data(program):
    out = program.run(PROGRAM + """
    import pathlib
    meta = {"epoch": 3, "name": "Große Ω \\U0001f600", "nested": {"list": [1, 2.5, None, True]}, "": ""}
    assert kv.save("model", meta) is None
    w.set(keys, np.zeros((100, 8)))
    assert kv.load(pathlib.Path("model")) == meta
    found = np.empty((100, 8))
    w.pull(keys, found)
    assert (found == values).all()
    kv.save(dir=b"model")
    assert kv.load(dir="model") == {}
    stats = kv.stats()
    assert stats["keys_set"] == 200 and stats["keys_pulled"] == 100   # save and load do not count
    print("done")
    """)
    assert out == "done\n"


BAD_CALLS = (
    ("kv.save('')", "InvalidValue dir is empty"),
    ("kv.save(7)", "InvalidType dir: 7 is no path"),
    ("kv.load('with\\0zero')", "InvalidValue dir: "),
    ("kv.save('model', [1])", r"InvalidType meta: \[1\] is no dict"),
    ("kv.save('model', {'a': object()})", "InvalidType meta: it must be possible to write it as JSON: .*object"),
    ("kv.save('model', {'a': float('nan')})", "InvalidValue meta: it must be possible to write it as JSON"),
    ("kv.save('x' * 5000)", "InvalidValue dir has 5000 characters"),
    ("kv.load('nowhere')", "SystemFailure there is no checkpoint in 'nowhere'"),
    ("kv.close(); kv.save('model')", "WrongState these parameters are closed"),
)


def test_bad_calls_are_refused(program):
    lines = program.run(PROGRAM + "".join(refused(call) for call, _ in BAD_CALLS)).splitlines()
    assert len(lines) == len(BAD_CALLS)
    for (call, said), line in zip(BAD_CALLS, lines):
        assert re.match(said, line), (call, line)


def test_a_thread_beside_one_that_saves_is_refused(program):
    out = program.run(PROGRAM + """
    import threading
    said = []
    def save():
        try:
            for _ in range(20):
                kv.save("model")
        except godwit.WrongState as error:
            said.append(str(error))
    threads = [threading.Thread(target=save) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all("another thread" in text for text in said)
    kv.load("model")
    print("done")
    """)
    assert out == "done\n"


def test_other_programs_open_the_files(program, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    np = pytest.importorskip("numpy")
    program.run(PROGRAM + "    kv.save('model')\n")
    arrays = safetensors.load_file(part_of(tmp_path / "model"))
    assert arrays["keys"].tolist() == list(range(100))
    assert (arrays["values"] == np.random.default_rng(7).standard_normal((100, 8))).all()


def test_other_programs_open_files_with_several_lengths(program, tmp_path):
    pytest.importorskip("safetensors")
    pytest.importorskip("torch")
    from safetensors import safe_open

    program.run("""
    import os
    import numpy as np
    import godwit

    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    with godwit.Parameters(7, [3, 1, 3, 5, 1, 1, 3]) as kv, kv.worker() as w:
        w.set(np.arange(7), np.arange(17, dtype=np.float32))
        kv.save("model", {"a": 1})
    """)
    with safe_open(part_of(tmp_path / "model"), framework="pt") as file:
        assert sorted(file.keys()) == ["keys.1", "keys.3", "keys.5", "values.1", "values.3", "values.5"]
        assert file.get_tensor("keys.3").tolist() == [0, 2, 6]
        assert file.get_tensor("values.3").tolist() == [[0, 1, 2], [4, 5, 6], [14, 15, 16]]
        assert file.get_tensor("keys.5").tolist() == [3] and file.get_tensor("values.1").tolist() == [[3], [12], [13]]
        assert file.metadata()["format"] == "godwit checkpoint part 1"


def test_the_list_is_plain_json(program, tmp_path):
    program.run(PROGRAM + "    kv.save('model', {'epoch': 3})\n")
    what = json.loads((tmp_path / "model" / "checkpoint.json").read_text())
    assert what["num_keys"] == 100 and what["dtype"] == "float64" and what["meta"] == {"epoch": 3}
    assert what["parts"][0]["bytes"] == os.path.getsize(tmp_path / "model" / what["parts"][0]["file"])


def test_show_prints_what_is_inside_and_columns_line_up(program, tmp_path):
    program.run(PROGRAM + "    kv.save('model', {'epoch': 3, 'loss': 0.25})\n")
    lines = show(tmp_path / "model").splitlines()
    said = dict(line.split(None, 1) for line in lines[:6])
    assert said["keys"] == "100" and said["dtype"] == "float64" and said["lengths"] == "8" and said["by"] == "1 rank on 1 node"
    assert "epoch  3" in lines[7] and "loss   0.25" in lines[8]
    head = next(line for line in lines if line.startswith("part "))
    row = lines[lines.index(head) + 1]
    assert row.endswith("  ok") and lines[-1] == "Its part is as it was saved."
    for word, width in (("crc32c", 8), ("state", 2)):
        at = head.index(word)
        assert row[at - 2:at] == "  " and not row[at:at + width].count(" ")
    for word, shown in (("rank", "0"), ("node", "0"), ("keys", "100"), ("bytes", "7,")):
        assert row[:head.index(word) + len(word)].split()[-1].startswith(shown)


def test_show_finds_what_is_wrong(program, tmp_path):
    program.run(PROGRAM + "    kv.save('model')\n")
    part = part_of(tmp_path / "model")
    whole = part.read_bytes()
    for contents, state in ((whole[:-1], "truncated"), (whole[:-1] + bytes([whole[-1] ^ 1]), "damaged"), (None, "missing")):
        part.unlink()
        if contents is not None:
            part.write_bytes(contents)
        text = show(tmp_path / "model", expect=1)
        assert re.search(rf"part-00000\.safetensors .*  {state}$", text, re.M), text
        assert "It cannot be loaded: 1 of 1 part is not as saved." in text
        assert show(tmp_path / "model", "--no-check").splitlines()[-1] == "The parts were not read."
    assert "there is no checkpoint" in show(tmp_path, expect=1)

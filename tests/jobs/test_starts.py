"""Jobs of eight processes with parameters on several nodes start and end, again and again.

    GODWIT_STARTS=500 pytest tests/jobs/test_starts.py      `make test-starts`; without it a few
"""

from __future__ import annotations

import os

from processes import BIN, run

STARTS = int(os.environ.get("GODWIT_STARTS", "6"))

PROGRAM = """
import array
import godwit
with godwit.Parameters(100, 2) as kv, kv.worker() as w:
    keys, ones = array.array("q", range(100)), array.array("f", [1.0] * 200)
    w.intent(keys, 0, 2)
    w.push(keys, ones)
    w.end_setup()
    w.pull(keys, ones)
    assert set(ones) == {float(godwit.init().size)}, ones
    w.barrier()
"""


def test_every_start_of_eight_processes_ends_well(program, leaves_nothing):
    path = program(PROGRAM)
    for start in range(STARTS):
        done = run(BIN / "godwit", "run", "-n", "8", "--node-size", str((1, 2, 4)[start % 3]), path,
                   timeout=60, GODWIT_TIMEOUT="40")
        assert done.returncode == 0, f"start {start + 1} of {STARTS}: {done.stdout}{done.stderr}"
        if STARTS > 20 and (start + 1) % 50 == 0:
            print(f"{start + 1} of {STARTS} starts", flush=True)

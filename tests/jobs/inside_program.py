"""A job whose keys are in motion, to be looked at from inside and outside.

    inside_program.py SECONDS [KEYS [WORKERS [PARAMETERS]]]

Each node works on a part of the keys that moves on with time, announces it ahead, and shares some keys, which are
replicated, with all others.  A few keys come unannounced.
"""

import sys
import threading
import time

import numpy as np

import godwit

SECONDS = float(sys.argv[1])
KEYS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
WORKERS = int(sys.argv[3]) if len(sys.argv) > 3 else 1
PARAMETERS = int(sys.argv[4]) if len(sys.argv) > 4 else 1
BATCH, FAR, AHEAD, LENGTH = 200, 10, 12, 8

me = godwit.init()


def batch(clock, number, random):
    """Mostly a window of our own that goes round, some keys that all share; and at the end a few from anywhere."""
    at = (me.node / me.nodes + clock / 1000) * KEYS
    near = at + random.normal(0, KEYS / (8 * me.nodes), BATCH - FAR - 50)
    hot = random.integers(0, max(KEYS // 100, 1), 50)
    far = random.integers(0, KEYS, FAR)
    return np.concatenate([near.astype(np.int64), hot, far]) % KEYS


def work(kv, number, end):
    worker = kv.worker()
    random = np.random.default_rng(1000 * me.rank + number)
    coming = {}
    values = np.empty((BATCH, LENGTH), np.float32)
    worker.barrier()
    clock = 0
    while time.monotonic() < end:
        for ahead in range(clock, clock + AHEAD):
            if ahead not in coming:
                coming[ahead] = batch(ahead, number, random)
                worker.intent(coming[ahead][:-FAR], ahead, ahead + 1)
        keys = coming.pop(clock)
        worker.pull(keys, values)
        worker.push(keys, np.full_like(values, 0.01))
        time.sleep(0.002)
        worker.advance_clock()
        clock += 1
        if clock % 400 == 0:
            worker.wait_sync()
    worker.barrier()
    worker.close()


kvs = [godwit.Parameters(KEYS, LENGTH, workers=WORKERS) for _ in range(PARAMETERS)]
end = time.monotonic() + SECONDS
print("ready", me.rank, flush=True)
threads = [threading.Thread(target=work, args=(kv, i, end)) for kv in kvs for i in range(WORKERS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for kv in kvs:
    kv.close()
print("done", me.rank, flush=True)

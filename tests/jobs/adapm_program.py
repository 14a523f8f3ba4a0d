"""A program for AdaPM, as its bindings are used: it knows nothing of Godwit.

    godwit run --as adapm adapm_program.py [port [spawn]]

Four nodes with two worker threads each. Workers announce what they will use, pull and push it by PyTorch tensors, then by
NumPy arrays, and each compares with what must come out. The program ends with 1 if a process did not end well.
"""

import os
import sys
import threading

import adapm
import numpy as np
import torch
from torch import multiprocessing

NODES, THREADS = 4, 2
WORKERS = NODES * THREADS
KEYS, LENGTH = 1000, 4
LONG_KEY, LONG_LENGTH = 400, 10  # one vector is longer than the others
STEPS, AHEAD = 12, 3
FIRST_SAMPLED, SAMPLED = 500, 300  # these keys keep their first values, by which they are known


def variables(role, port):
    os.environ["DMLC_NUM_SERVER"] = str(NODES)
    os.environ["DMLC_ROLE"] = role
    os.environ["DMLC_PS_ROOT_URI"] = "127.0.0.1"
    os.environ["DMLC_PS_ROOT_PORT"] = port


def scheduler(port):
    variables("scheduler", port)
    adapm.scheduler(KEYS, THREADS)


class Torch:
    name = "PyTorch"
    keys = staticmethod(torch.LongTensor)
    full = staticmethod(lambda *shape, value=0.0: torch.full(shape, value))


class NumPy:
    name = "NumPy"
    keys = staticmethod(lambda keys: np.array(keys, dtype=np.int64))
    full = staticmethod(lambda *shape, value=0.0: np.full(shape, value, dtype=np.float32))


class Checks:
    def __init__(self):
        self.count, self.wrong, self.done = 0, [], False

    def equal(self, what, got, expected):
        self.count += 1
        if not np.array_equal(np.asarray(got), np.broadcast_to(np.float32(expected), np.asarray(got).shape)):
            self.wrong.append(f"{what}: {np.asarray(got).ravel()[:8].tolist()}..., not {expected}")


def first_values(kv, number):
    """Every worker sets a part of the keys to their own numbers; then all see all."""
    kv.begin_setup()
    mine = torch.arange(number, KEYS, WORKERS)
    mine = mine[mine != LONG_KEY]
    kv.set(mine, mine.float().repeat_interleave(LENGTH))
    kv.end_setup()


def train(kv, number, lib, checks):
    """All workers add to the keys 10 to 13, each also to four of its own."""
    shared, own = [10, 11, 12, 13], [100 + 4 * number + i for i in range(4)]
    keys = lib.keys(shared + own)
    values, updates = lib.full(8, LENGTH), lib.full(8, LENGTH, value=1.0)
    before = lib.full(4, LENGTH)
    kv.pull(lib.keys(own), before)

    begin = kv.current_clock()
    kv.intent(keys, begin, begin + AHEAD)
    for step in range(STEPS):
        kv.intent(keys, kv.current_clock() + AHEAD)
        kv.pull(keys, values)
        checks.equal("own keys are changed by nobody else", values[4:], np.asarray(before) + step)
        updates[:] = 1.0
        timestamp = kv.push(keys, updates, True)
        updates[:] = 99.0  # what was pushed is on its way, and the array is free again
        if step % 2:
            kv.wait(timestamp)
        kv.advance_clock()
    kv.waitall()
    checks.equal("clocks count", kv.current_clock(), begin + STEPS)


def look(kv, lib, round_number, checks):
    """After all have synchronized, all see what all have done."""
    kv.wait_sync()
    kv.barrier()
    kv.wait_sync()
    values, more = lib.full(4, LENGTH), lib.full(4, LENGTH)
    timestamps = kv.pull(lib.keys([10, 11, 12, 13]), values, True), kv.pull(lib.keys([100, 103, 104, 131]), more, True)
    for timestamp in timestamps:
        kv.wait(timestamp)
    checks.equal("shared keys", values, [[key + round_number * WORKERS * STEPS] for key in (10, 11, 12, 13)])
    checks.equal("others' keys", more, [[key + round_number * STEPS] for key in (100, 103, 104, 131)])
    kv.barrier()


def longer(kv, lib, round_number, checks):
    key, values = lib.keys([LONG_KEY]), lib.full(LONG_LENGTH, value=0.5)
    checks.equal("its length", kv.get_key_size(LONG_KEY), LONG_LENGTH)
    kv.push(key, values)
    kv.barrier()
    kv.pull(key, values)
    checks.equal("the longer vector", values, 0.5 * WORKERS * round_number)
    kv.barrier()


def sample(kv, lib, checks):
    clock = kv.current_clock()
    prepared = kv.prepare_sample(8, clock, clock + 2)
    for portion in (5, 3):
        keys, values = lib.keys([-1] * portion), lib.full(portion, LENGTH)
        kv.wait(kv.pull_sample(prepared, keys, values, True))
        keys = np.asarray(keys)
        checks.equal("sampled keys are of the range", (keys >= FIRST_SAMPLED) & (keys < FIRST_SAMPLED + SAMPLED), True)
        checks.equal("sampled keys and values belong together", values, keys.reshape(-1, 1))


def work(kv, number, checks):
    checks.equal("keys", kv.num_keys, KEYS)
    first_values(kv, number)
    for round_number, lib in ((1, Torch), (2, NumPy)):
        train(kv, number, lib, checks)
        look(kv, lib, round_number, checks)
        longer(kv, lib, round_number, checks)
        sample(kv, lib, checks)
    kv.finalize()
    checks.done = True


def node(port):
    variables("server", port)
    adapm.setup(KEYS, THREADS)
    lengths = torch.ones(KEYS) * LENGTH
    lengths[LONG_KEY] = LONG_LENGTH
    server = adapm.Server(lengths)
    server.enable_sampling_support(scheme="local", with_replacement=True, distribution="uniform",
                                   min=FIRST_SAMPLED, max=FIRST_SAMPLED + SAMPLED)
    rank = server.my_rank()
    server.barrier()

    checks = [Checks() for _ in range(THREADS)]
    threads = []
    for w in range(THREADS):
        thread = threading.Thread(target=work, args=(adapm.Worker(w, server), rank * THREADS + w, checks[w]))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    server.shutdown()

    for each in checks:
        print("\n".join([f"a worker of node {rank}: {each.count} comparisons, {len(each.wrong)} wrong", *each.wrong]), flush=True)
    if any(each.wrong or not each.done for each in checks):
        sys.exit(1)


if __name__ == "__main__":
    port = sys.argv[1] if len(sys.argv) > 1 else "9091"
    context = multiprocessing.get_context(sys.argv[2] if len(sys.argv) > 2 else "fork")
    processes = [context.Process(target=scheduler, args=(port,))]
    processes += [context.Process(target=node, args=(port,)) for _ in range(NODES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))

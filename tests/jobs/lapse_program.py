"""A program for Lapse, as its bindings are used: it knows nothing of Godwit.

    godwit run --as lapse lapse_program.py [port [spawn]]

Four nodes with two worker threads each. Keys are brought to the node that uses them next, so they wander. Each worker
compares with what must come out. Nobody finalizes. The program ends with 1 if a process did not end well.
"""

import os
import sys
import threading

import lapse
import numpy as np
import torch
from torch import multiprocessing

NODES, THREADS = 4, 2
WORKERS = NODES * THREADS
KEYS, LENGTH = 800, 2
LONG_KEY, LONG_LENGTH = 400, 10  # one vector is longer than the others
BLOCK = 16  # keys of a worker at a time
UNTOUCHED = 500  # from here on keys are only set, to their own numbers


def variables(role, port):
    os.environ["DMLC_NUM_WORKER"] = "0"
    os.environ["DMLC_NUM_SERVER"] = str(NODES)
    os.environ["DMLC_ROLE"] = role
    os.environ["DMLC_PS_ROOT_URI"] = "127.0.0.1"
    os.environ["DMLC_PS_ROOT_PORT"] = port


def scheduler(port):
    variables("scheduler", port)
    lapse.scheduler(KEYS, THREADS)


def keys_of(lib, first, n):
    return torch.arange(first, first + n) if lib is torch else np.arange(first, first + n)


def values_of(lib, n, value):
    return torch.full((n,), float(value)) if lib is torch else np.full(n, value, dtype=np.float32)


class Checks:
    def __init__(self):
        self.count, self.wrong, self.done = 0, [], False

    def equal(self, what, got, expected):
        self.count += 1
        if not np.array_equal(np.asarray(got), np.broadcast_to(np.float32(expected), np.asarray(got).shape)):
            self.wrong.append(f"{what}: {np.asarray(got).ravel()[:8].tolist()}..., not {expected}")


def wander(kv, number, lib, checks):
    """In every turn a worker has another block of keys, and they come to it."""
    for turn in range(WORKERS):
        keys = keys_of(lib, (number + turn) % WORKERS * BLOCK, BLOCK)
        kv.localize(keys)
        kv.wait(kv.localize(keys, True))
        updates = values_of(lib, BLOCK * LENGTH, 1)
        kv.push(keys, updates, True)
        updates[:] = 99  # what was pushed is on its way, and the array is free again
        kv.push(keys, values_of(lib, BLOCK * LENGTH, 2))
        kv.barrier()
        values = values_of(lib, BLOCK * LENGTH, 0)
        kv.pull(keys, values)
        checks.equal(f"after turn {turn}", values, 3 * (turn + 1))
        kv.barrier()


def assign(kv, number, lib, checks):
    """Each has its block to itself: what is set is there, whatever it was."""
    keys = keys_of(lib, number * BLOCK, BLOCK)
    kv.set(keys, values_of(lib, BLOCK * LENGTH, 0))
    kv.set(keys, values_of(lib, BLOCK * LENGTH, number), True)
    timestamp = kv.push(keys, values_of(lib, BLOCK * LENGTH, 1), True)
    values = values_of(lib, BLOCK * LENGTH, 0)
    other = kv.pull(keys, values, True)
    kv.wait(timestamp)
    kv.wait(other)
    checks.equal("what was set and pushed", values, number + 1)
    kv.barrier()
    kv.set(keys, values_of(lib, BLOCK * LENGTH, 0))
    kv.waitall()
    kv.barrier()


def longer(kv, lib, round_number, checks):
    """A key that all push to, and whose vector has another length."""
    key = keys_of(lib, LONG_KEY, 1)
    checks.equal("its length", kv.get_key_size(LONG_KEY), LONG_LENGTH)
    kv.push(key, values_of(lib, LONG_LENGTH, 0.25))
    kv.barrier()
    values = values_of(lib, LONG_LENGTH, 0)
    kv.pull(key, values)
    checks.equal("the longer vector", values, 0.25 * WORKERS * round_number)
    kv.barrier()


def sample(kv, lib, checks):
    prepared = kv.prepare_sample(6, 0)
    keys, values = keys_of(lib, 0, 6), values_of(lib, 6 * LENGTH, -1)
    kv.pull_sample(prepared, keys, values)
    checks.equal("sampled keys are of the range", np.asarray(keys) >= UNTOUCHED, True)
    checks.equal("sampled keys and values belong together", values, np.asarray(keys).repeat(LENGTH))


def work(kv, number, checks):
    checks.equal("keys", kv.num_keys, KEYS)
    share = torch.arange(UNTOUCHED + number, KEYS, WORKERS)
    kv.set(share, share.float().repeat_interleave(LENGTH))
    kv.barrier()
    for round_number, lib in ((1, torch), (2, np)):
        wander(kv, number, lib, checks)
        assign(kv, number, lib, checks)
        longer(kv, lib, round_number, checks)
        sample(kv, lib, checks)
    checks.done = True


def node(port):
    variables("server", port)
    lapse.setup(KEYS, THREADS)
    lengths = torch.full((KEYS,), LENGTH)
    lengths[LONG_KEY] = LONG_LENGTH
    server = lapse.Server(lengths)
    server.enable_sampling_support("naive", True, "log-uniform", UNTOUCHED, KEYS)
    rank = server.my_rank()

    checks = [Checks() for _ in range(THREADS)]
    threads = []
    for w in range(THREADS):
        kv = lapse.Worker(0, w + 1, server)
        thread = threading.Thread(target=work, args=(kv, rank * THREADS + w, checks[w]))
        thread.start()
        threads.append(thread)
        del kv
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

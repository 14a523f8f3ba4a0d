"""Checks of godwit.Parameters that every rank runs.  `godwit run -n 4 params_values.py`

Each function is a check; a rank prints which passed.  They use PyTorch 1.13 or newer.
"""

from __future__ import annotations

import threading

import numpy as np
import torch

import godwit

me = godwit.init()


def check_what_all_push_adds_up_exactly():
    with godwit.Parameters(1000, 16) as kv, kv.worker() as w:
        chance = np.random.default_rng(me.rank)
        mine = np.zeros((1000, 16), np.float64)
        for turn in range(50):
            keys = chance.integers(0, 1000, 300) if turn % 2 else chance.zipf(1.5, 300) % 1000
            updates = chance.integers(-8, 9, (300, 16)).astype(np.float32)
            np.add.at(mine, keys, updates)
            w.push(torch.from_numpy(keys), updates)
        w.barrier()
        got = torch.empty(1000, 16)
        w.pull(torch.arange(1000), got)
        total = godwit.COMM_WORLD.Allreduce(mine)
        assert np.array_equal(got.numpy(), total), "an update was lost or came twice"


def check_what_one_sets_all_see_after_a_barrier():
    lengths = [key % 5 + 1 for key in range(100)]
    with godwit.Parameters(100, lengths, dtype=torch.float64) as kv, kv.worker() as w:
        for turn in range(20):
            if me.rank == turn % me.size:
                w.set(np.arange(100), np.full(sum(lengths), turn + 1.0))
            w.barrier()
            got = torch.empty(sum(lengths), dtype=torch.float64)
            w.pull(torch.arange(100), got)
            assert got.eq(turn + 1).all(), (turn, got)
            w.barrier()


def check_no_vector_is_ever_seen_half_written():
    with godwit.Parameters(3, 5000) as kv, kv.worker() as w:
        keys, values = torch.arange(3), torch.empty(3, 5000)
        for turn in range(200):
            number = float(turn * me.size + me.rank)
            w.set(keys, torch.full((3, 5000), number))
            w.pull(keys, values)
            assert torch.equal(values, values[:, :1].expand(3, 5000))
        w.barrier()


def check_own_writes_are_seen_at_once():
    with godwit.Parameters(10 * me.size, 8) as kv, kv.worker() as w:
        keys = torch.arange(10) * me.size + me.rank  # nobody else's
        values, want = torch.empty(10, 8), torch.zeros(10, 8)
        for turn in range(200):
            if turn % 7 == 0:
                want.fill_(turn)
                w.set(keys, want, asynchronous=True)
            want += 1
            w.push(keys, torch.ones(10, 8), asynchronous=True)
            w.wait(w.pull(keys, values, asynchronous=True))
            assert torch.equal(values, want)


def check_threads_of_all_processes_are_workers():
    with godwit.Parameters(20, 64, workers=3) as kv:
        def work(w):
            for _ in range(50):
                w.push(torch.arange(20), torch.ones(20, 64))
                w.advance_clock()
            w.barrier()
            w.pull(torch.arange(20), values[w])

        workers = [kv.worker() for _ in range(3)]
        values = {w: torch.empty(20, 64) for w in workers}
        threads = [threading.Thread(target=work, args=(w,)) for w in workers]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert all(got.eq(150.0 * me.size).all() for got in values.values())
        assert [w.current_clock for w in workers] == [50, 50, 50]


def check_several_parameters_do_not_mix():
    with godwit.Parameters(5, 2) as one, godwit.Parameters(7, 3, "float64") as two:
        with one.worker() as w, two.worker() as v:
            w.push(torch.arange(5), torch.ones(5, 2))
            v.push(torch.arange(7), torch.ones(7, 3, dtype=torch.float64))
            w.barrier()
            v.barrier()
            got = torch.empty(7, 3, dtype=torch.float64)
            v.pull(torch.arange(7), got)
            assert got.eq(me.size).all()


def check_parameters_that_ranks_do_not_agree_on_are_refused():
    if me.size == 1:
        return
    last = me.rank == me.size - 1
    for mine in ((11 if last else 10, 4), (10, 5 if last else 4), (10, 4, "float64" if last else "float32"),
                 (10, 4, "float32", 2 if last else 1)):
        try:
            godwit.Parameters(*mine)
        except godwit.RanksDisagree as error:
            assert "rank" in str(error)
        else:
            raise AssertionError(f"accepted: {mine}")


def check_an_argument_refused_on_one_rank_ends_the_call_on_all():
    for bad in ((10, "long"), (10, 4, "int8"), (0, 4), ("ten", 4)):
        try:
            godwit.Parameters(*(bad if me.rank == 0 else (10, 4)))
        except (TypeError, ValueError) as error:
            assert me.rank == 0 and isinstance(error, godwit.Error)
        except godwit.RanksDisagree as error:
            assert me.rank != 0 and "rank 0" in str(error)
        else:
            raise AssertionError(f"accepted: {bad}")


def check_memory_is_given_back():
    for _ in range(5):
        with godwit.Parameters(1000, 1000) as kv, kv.worker() as w:
            w.push(torch.arange(1000), torch.ones(1000, 1000))
            w.barrier()


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print("passed:", name[len("check_"):], flush=True)
godwit.barrier()

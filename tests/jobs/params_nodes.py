"""Checks of godwit.Parameters of several nodes that every rank runs.  `godwit run -n 4 --node-size 2 params_nodes.py`

Each function is a check; a rank prints which passed.  They use NumPy alone, so that jobs start quickly, and hold for any
number of nodes, also one.  GODWIT_TEST_SEED replays what is random.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import threading
import time
import weakref

import numpy as np

import godwit

me = godwit.init()
TECHNIQUES = "all", "replication", "relocation", "static"


def of_all(mine: object) -> list:
    """What every rank gives, in the order of ranks."""
    for rank in range(me.size):
        godwit.send(rank, pickle.dumps(mine))
    return [pickle.loads(godwit.recv(rank)) for rank in range(me.size)]


SEED = int(os.environ.get("GODWIT_TEST_SEED", "0")) or of_all(random.SystemRandom().randrange(1, 1 << 31))[0]


def ones(n: int, length: int, value: float = 1) -> np.ndarray:
    return np.full((n, length), value, np.float32)


def pulled(w: godwit.Worker, keys: np.ndarray, length: int) -> np.ndarray:
    values = np.full((len(keys), length), -1, np.float32)
    assert w.pull(keys, values) == -1
    return values


class Mix:
    """A worker that does all there is at random.  Of three keys, all push to the first, all set the second, and the third
    is one worker's own, which always knows what must be there."""

    N, LENGTH = 240, 6

    def __init__(self, w: godwit.Worker, number: int, n_workers: int):
        self.w, self.number, self.n_workers = w, number, n_workers
        self.chance = np.random.default_rng([SEED, number])
        self.pushed = np.zeros(self.N)
        self.last_set = np.zeros(self.N)  # 0: never
        self.own = np.zeros(self.N)
        self.mine = [key for key in range(2, self.N, 3) if key // 3 % n_workers == number]
        self.turn = 0

    def some(self, kind: int) -> np.ndarray:
        return self.chance.integers(0, self.N // 3, self.chance.integers(1, 30)) * 3 + kind

    def write(self) -> None:
        self.turn += 1
        w, later = self.w, bool(self.chance.integers(2))
        what = self.chance.integers(3)
        if what == 0:
            keys, value = self.some(0), int(self.chance.integers(1, 5))
            np.add.at(self.pushed, keys, value)
            w.push(keys, ones(len(keys), self.LENGTH, value), later)
        elif what == 1:
            keys, value = self.some(1), self.turn * self.n_workers + self.number + 1
            self.last_set[keys] = value
            w.set(keys, ones(len(keys), self.LENGTH, value), later)
        else:
            keys = self.chance.choice(self.mine, 5)
            if self.chance.integers(2):
                self.own[keys] = self.turn
                w.set(keys, ones(5, self.LENGTH, self.turn), later)
            else:
                np.add.at(self.own, keys, 1)
                w.push(keys, ones(5, self.LENGTH), later)

    def look(self) -> None:
        keys = np.concatenate([self.chance.choice(self.mine, 5), self.some(0), self.some(1)])
        values = np.empty((len(keys), self.LENGTH), np.float32)
        self.w.wait(self.w.pull(keys, values, bool(self.chance.integers(2))))
        assert (values == values[:, :1]).all(), "part of a change was seen"
        assert (values[:5, 0] == self.own[keys[:5]]).all(), (SEED, self.number, keys[:5], values[:5, 0], self.own[keys[:5]])

    def steer(self) -> None:
        keys, clock = self.some(int(self.chance.integers(3))), self.w.current_clock
        what = self.chance.integers(4)
        if what == 0:
            self.w.localize(keys, asynchronous=bool(self.chance.integers(2)))
        elif what == 1:
            self.w.intent(keys, clock + int(self.chance.integers(5)))
        elif what == 2:
            self.w.intent(keys.astype(np.int32), clock, clock + int(self.chance.integers(1, 9)))
        else:
            self.w.advance_clock()

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.chance.choice([self.write, self.write, self.look, self.steer])()
        if self.chance.integers(2):
            self.w.wait_all()


def check_totals_are_exact_on_every_node_and_own_writes_always_seen():
    for technique in TECHNIQUES:
        with godwit.Parameters(Mix.N, Mix.LENGTH, technique=technique) as kv, kv.worker() as w:
            mix = Mix(w, me.rank, me.size)
            for _ in range(2):
                mix.run(120 if technique == "all" else 40)
                w.wait_sync()
                w.barrier()
                w.wait_sync()
                w.barrier()
                got = pulled(w, np.arange(Mix.N), Mix.LENGTH)
                assert (got == got[:, :1]).all()
                total = sum(of_all(mix.pushed))
                wrong = [(key, got[key, 0], total[key]) for key in range(0, Mix.N, 3) if got[key, 0] != total[key]]
                assert not wrong, (SEED, technique, wrong)
                assert np.array_equal(got[2::3, 0], sum(of_all(mix.own))[2::3]), (SEED, technique)
                sets = np.array(of_all(mix.last_set))
                for key in range(1, Mix.N, 3):
                    assert got[key, 0] in sets[:, key], (SEED, technique, key, got[key, 0], sets[:, key])
                assert all(np.array_equal(got, others) for others in of_all(got)), (SEED, technique)


def check_totals_of_threads_are_exact():
    with godwit.Parameters(Mix.N, Mix.LENGTH, workers=2) as kv:
        mixes = [Mix(kv.worker(), 2 * me.rank + number, 2 * me.size) for number in range(2)]
        failures = []

        def work(mix):
            try:
                mix.run(60)
                mix.w.end_setup()
                mix.got = pulled(mix.w, np.arange(Mix.N), Mix.LENGTH)
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(mix,)) for mix in mixes]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failures, failures
        total = sum(of_all(mixes[0].pushed + mixes[1].pushed))
        assert all(np.array_equal(mix.got[0::3, 0], total[0::3]) for mix in mixes), SEED


def check_values_given_at_the_start_are_everywhere():
    with godwit.Parameters(500, [1 + key % 3 for key in range(500)], "float64") as kv, kv.worker() as w:
        mine = np.arange(me.rank, 500, me.size)
        w.begin_setup()
        w.set(mine, np.concatenate([np.full(1 + key % 3, key + 0.25) for key in mine]), asynchronous=True)
        w.end_setup()
        got = np.empty(sum(1 + key % 3 for key in range(500)))
        w.pull(np.arange(500), got)
        assert np.array_equal(got, np.concatenate([np.full(1 + key % 3, key + 0.25) for key in range(500)]))
        w.barrier()


def check_keys_are_here_after_localize():
    with godwit.Parameters(400, 3) as kv, kv.worker() as w:
        if me.nodes > 1:
            assert not w.is_local(np.arange(400)).all()
        for turn in range(3):
            keys = np.arange(400)[np.arange(400) % me.nodes == (me.node + turn) % me.nodes]
            if turn % 2:
                w.wait(w.localize(keys, asynchronous=True))
            else:
                assert w.localize(keys.astype(np.int32)) == -1
            assert w.is_local(keys).all()
            w.push(keys, ones(len(keys), 3))
            w.barrier()
            if me.nodes > 1:
                assert not w.is_local(np.setdiff1d(np.arange(400), keys)).any(), "a key is in two places"
            w.barrier()
        assert (pulled(w, np.arange(400), 3) == 3 * me.size / me.nodes).all()
        w.localize(np.arange(0))
        w.barrier()


def until(what, seconds: float = 10) -> None:
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.001)


def check_keys_are_here_after_intents():
    with godwit.Parameters(400, 3) as kv, kv.worker() as w:
        mine = np.arange(400)[np.arange(400) % me.nodes == (me.node + 1) % me.nodes]
        w.intent(mine, 0, 2)
        w.wait_sync()
        assert w.is_local(mine).all(), "one node wanted these"
        w.barrier()
        everybody = np.arange(100)
        w.intent(everybody, 1)
        w.advance_clock()
        w.wait_sync()
        assert w.is_local(everybody).all(), "all nodes wanted these"
        w.push(everybody, ones(100, 3))
        w.end_setup()
        assert (pulled(w, everybody, 3) == me.size).all()
        w.barrier()
        w.advance_clock()
        until(lambda: me.nodes == 1 or sum(of_all(w.is_local(everybody).sum() / (me.size / me.nodes))) == 100)  # one has each
        assert (pulled(w, everybody, 3) == me.size).all()
        w.barrier()


def check_an_intent_is_due_as_soon_as_the_clock_says_so():
    with godwit.Parameters(100, 3) as kv, kv.worker() as w:
        for clock in range(1, 3000 // me.size):
            keys = np.array([clock * 7 % 100, clock * 13 % 100])
            w.intent(keys, clock)
            w.advance_clock()
            w.wait_sync()
            assert w.is_local(keys).all(), f"clock {clock}"
        w.barrier()


def check_statistics_tell_what_happened():
    with godwit.Parameters(400, 8) as kv, kv.worker() as w:
        keys = np.arange(400)
        w.end_setup()
        assert kv.stats()["keys_pulled"] == kv.stats()["moves"] == 0
        pulled(w, keys, 8)
        here = w.is_local(keys).sum()
        mine = kv.stats()
        assert mine["keys_pulled"] == 400 and mine["keys_remote"] == 400 - here
        assert abs(mine["local_share"] - here / 400) < 1e-9
        w.barrier()
        total = kv.stats(total=True)
        assert total["keys_pulled"] == 400 * me.size and total["keys_remote"] == 400 * (me.size - me.size // me.nodes)
        assert (total["bytes_for_access"] >= total["keys_remote"] * 32) and total["hops"] == 0
        assert total["bytes_sent"] == sum(n for name, n in total.items() if name.startswith("bytes_for_"))
        w.barrier()
        w.intent(keys, 0, 2)
        w.wait_sync()
        w.barrier()
        total = kv.stats(total=True)
        if me.nodes > 1:  # all want all: one has each, the others have copies
            assert total["replicas"] == 400 * (me.nodes - 1), total
            w.push(keys, ones(400, 8))
            w.wait_sync()
            w.barrier()
            assert kv.stats(total=True)["tells"] > 0 and kv.stats(total=True)["staleness_us"] > 0
            w.barrier()
        w.barrier()


def check_statistics_tell_what_moved_and_was_passed_on():
    with godwit.Parameters(400, 8) as kv, kv.worker() as w:
        keys = np.arange(400)
        w.end_setup()
        elsewhere = of_all(400 - int(w.is_local(keys).sum()))[0]
        if me.rank == 0:
            w.localize(keys)
        w.barrier()
        moves = sum(of_all(kv.stats()["moves"]))
        assert moves == kv.stats(total=True)["moves"] == elsewhere, (moves, elsewhere)
        w.barrier()
        pulled(w, keys, 8)  # a third node asks homes, which pass it on
        w.barrier()
        assert (kv.stats(total=True)["hops"] > 0) == (me.nodes > 2)
        w.barrier()


def check_statistics_of_times_are_about_right():
    with godwit.Parameters(400, 8) as kv, kv.worker() as w:
        keys = np.arange(400)
        w.intent(keys, 0, 1000)
        w.wait_sync()
        w.end_setup()
        begin = time.monotonic()
        for _ in range(60):
            w.push(keys, ones(400, 8))
            w.advance_clock()
            time.sleep(0.005)
        clock_us = max(of_all((time.monotonic() - begin) / 60 * 1e6))
        total = kv.stats(total=True)
        if me.nodes == 1:
            assert total["rounds_per_s"] == total["clock_us"] == total["intent_us"] == total["staleness_us"] == 0
        else:
            assert 3000 < total["clock_us"] < 3 * clock_us, (total, clock_us)
            assert 0 < total["intent_us"] < 10e6 and 20 < total["staleness_us"] < 500e3, total
            assert total["replicas"] == 400 * (me.nodes - 1) and 0 < total["rounds_per_s"] < 20000, total
        w.barrier()


def check_statistics_of_a_call_are_of_one_moment():
    with godwit.Parameters(400, 8) as kv, kv.worker() as w:
        ended, wrong, read = threading.Event(), [], []

        def watch() -> None:
            while not ended.is_set():
                found = kv.stats()
                read.append(1)
                if found["bytes_sent"] != sum(n for name, n in found.items() if name.startswith("bytes_for_")):
                    wrong.append(found)

        thread = threading.Thread(target=watch)
        thread.start()
        for turn in range(200):
            w.push(np.arange(400), ones(400, 8))
        ended.set()
        thread.join()
        assert read and not wrong, f"{len(wrong)} of {len(read)}: {wrong[0]}"
        w.barrier()


def check_bad_calls_are_refused_whole_and_the_empty_ones_do_nothing():
    with godwit.Parameters(10, 2) as kv, kv.worker() as w:
        keys, values = np.arange(10), ones(10, 2)
        w.push(keys, values)
        w.end_setup()
        locked = ones(10, 2)
        locked.flags.writeable = False
        for call, error in [
            (lambda: w.push(np.array([1, -1]), ones(2, 2)), IndexError),
            (lambda: w.push(np.array([1, 10]), ones(2, 2)), IndexError),
            (lambda: w.localize(np.array([1, 10])), IndexError),
            (lambda: w.intent(np.array([-1]), 0), IndexError),
            (lambda: w.intent(keys, 3, 3), ValueError),
            (lambda: w.push(keys, ones(9, 2)), ValueError),
            (lambda: w.push(keys, np.ones((10, 2))), TypeError),
            (lambda: w.push(np.arange(20)[::2], values), ValueError),
            (lambda: w.pull(keys, locked), ValueError),
        ]:
            try:
                call()
            except error as refused:
                assert isinstance(refused, godwit.Error), refused
            else:
                raise AssertionError(f"{error.__name__} was not raised")
        assert w.push(keys[:0], values[:0]) == w.pull(keys[:0], values[:0], True) == -1
        w.localize(keys[:0])
        w.intent(keys[:0], 0)
        w.push(np.array([7, 3, 7]), ones(3, 2))  # each counts
        w.barrier()
        assert (pulled(w, keys, 2)[:, 0] == me.size * np.array([1, 1, 1, 2, 1, 1, 1, 3, 1, 1])).all()
        w.barrier()
        if me.rank == 0:
            w.set(np.array([5, 4, 5]), np.array([[1, 1], [2, 2], [3, 3]], np.float32))  # the last one stays
        w.barrier()
        assert (pulled(w, np.array([5, 4, 5]), 2)[:, 0] == [3, 2, 3]).all()
        w.barrier()


def check_with_static_nothing_moves_but_all_can_be_asked_for():
    with godwit.Parameters(100, 2, technique="static") as kv, kv.worker() as w:
        before = w.is_local(np.arange(100))
        w.intent(np.arange(100), 0, 10)
        w.wait_sync()
        assert np.array_equal(before, w.is_local(np.arange(100)))
        w.push(np.arange(100), ones(100, 2))
        w.barrier()
        assert (pulled(w, np.arange(100), 2) == me.size).all()
        w.barrier()


def check_arrays_of_calls_that_nobody_waits_for_do_not_pile_up():
    with godwit.Parameters(64, 16) as kv, kv.worker() as w:
        class Array(np.ndarray):  # can be referred to weakly
            pass

        started, most = [], 0
        for turn in range(2000):
            updates = ones(64, 16).view(Array)
            started.append(weakref.ref(updates))
            ts = w.push(np.arange(64), updates, asynchronous=True)
            assert ts == -1 if me.nodes == 1 else ts >= 0
            if turn % 100 == 99:
                most = max(most, sum(ref() is not None for ref in started))
        del updates
        assert most < 1000, most
        w.wait(ts)
        w.wait_all()
        assert not any(ref() is not None for ref in started)
        w.barrier()
        assert (pulled(w, np.arange(64), 16) == 2000.0 * me.size).all()
        w.barrier()


def check_what_is_pulled_into_lives_until_it_is_there():
    with godwit.Parameters(1000, 16) as kv, kv.worker() as w:
        w.set(np.arange(me.rank, 1000, me.size), np.repeat(np.arange(me.rank, 1000, me.size), 16).astype(np.float32))
        w.barrier()
        views = []
        for _ in range(20):
            whole = np.full((1000, 16), -1, np.float32)
            views.append((w.pull(np.arange(1000), whole, True), memoryview(whole)))
            del whole
        for ts, view in views[::-1]:
            w.wait(ts)
            assert np.array_equal(np.asarray(view)[:, 0], np.arange(1000))
        for _ in range(20):
            w.pull(np.arange(1000), ones(1000, 16), True)  # nobody looks
        w.barrier()


def check_vectors_of_any_length_and_calls_of_any_size():
    lengths = [80_000, 1, 300, 20_000, 2]
    with godwit.Parameters(5, lengths) as kv, kv.worker() as w:
        everything = np.tile(np.arange(5), 3)
        w.push(everything, np.ones(3 * sum(lengths), np.float32), me.rank % 2 == 0)
        w.end_setup()
        got = np.empty(3 * sum(lengths), np.float32)
        w.pull(everything, got)
        assert (got == 3 * me.size).all()
        w.barrier()
        w.localize(everything, asynchronous=True)
        w.pull(everything, got)
        assert (got == 3 * me.size).all()
        w.barrier()
    with godwit.Parameters(50_000, 1) as kv, kv.worker() as w:
        w.push(np.arange(50_000), ones(50_000, 1))
        w.intent(np.arange(50_000), 0, 3)
        w.localize(np.arange(me.rank, 50_000, me.size))
        w.end_setup()
        assert (pulled(w, np.arange(50_000), 1) == me.size).all()
        w.barrier()


def check_workers_and_parameters_close_with_calls_under_way():
    for close in ("worker", "del", "parameters"):
        kv = godwit.Parameters(300, 8, workers=2)
        w, other = kv.worker(), kv.worker()
        w.push(np.arange(300), ones(300, 8), True)
        w.localize(np.arange(me.rank, 300, 3), True)
        w.intent(np.arange(100), 0, 1000)
        w.pull(np.arange(300), ones(300, 8), True)
        if close == "worker":
            w.close()
            w.close()
        elif close == "del":
            del w
        else:
            w.wait_all()
        if close == "parameters":
            w.close()
        other.wait_sync()
        other.barrier()
        other.wait_sync()
        assert (pulled(other, np.arange(300), 8) == me.size).all(), close
        other.barrier()
        other.push(np.arange(300), ones(300, 8), True)
        kv.close()
        assert other.closed


def check_several_parameters_do_not_mix():
    with godwit.Parameters(50, 2) as one, godwit.Parameters(70, 3, "float64") as two, one.worker() as w, two.worker() as v:
        w.push(np.arange(50), ones(50, 2), True)
        v.push(np.arange(70), np.ones((70, 3)), True)
        w.localize(np.arange(me.rank, 50, me.size))
        v.intent(np.arange(70), 0, 5)
        w.end_setup()
        v.end_setup()
        got = np.empty((70, 3))
        v.pull(np.arange(70), got)
        assert (got == me.size).all() and (pulled(w, np.arange(50), 2) == me.size).all()
        w.barrier()


def check_too_many_parameters_are_refused_and_what_is_closed_makes_room():
    several = [godwit.Parameters(10, 2) for _ in range(6)]
    if me.nodes > 1:
        try:
            godwit.Parameters(10, 2)
        except godwit.Unsupported as error:
            assert "6 parameters are open" in str(error)
        else:
            raise AssertionError("accepted")
    several[3].close()
    several[3] = godwit.Parameters(10, 2)
    for kv in several:
        with kv.worker() as w:
            w.push(np.arange(10), ones(10, 2))
            w.barrier()
            assert (pulled(w, np.arange(10), 2) == me.size).all()
            w.barrier()
        kv.close()


def check_a_forked_child_is_refused_and_disturbs_nobody():
    with godwit.Parameters(30, 4) as kv, kv.worker() as w:
        w.push(np.arange(30), ones(30, 4), True)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: w.pull(np.arange(30), ones(30, 4)), lambda: w.localize(np.arange(30)), w.wait_sync,
                         lambda: w.intent(np.arange(30), 0), lambda: w.wait(0), w.wait_all, w.barrier, w.end_setup):
                try:
                    call()
                except godwit.WrongState as error:
                    refused += "forked" in str(error)
            w.close(), kv.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
        w.end_setup()
        assert (pulled(w, np.arange(30), 4) == me.size).all()
        w.barrier()


def check_techniques_that_ranks_do_not_agree_on_are_refused():
    try:
        godwit.Parameters(10, 4, technique="static" if me.rank == 0 else "all")
    except godwit.RanksDisagree as error:
        assert "technique" in str(error)
    else:
        assert me.size == 1


print(f"seed {SEED}", file=sys.stderr)
only = sys.argv[1:]
for name, check in list(globals().items()):
    if name.startswith("check_") and (not only or name[len("check_"):] in only):
        started = time.monotonic()
        check()
        # In one piece, since launchers mix what ranks write.
        print(f"passed: {name[len('check_'):]} ({time.monotonic() - started:.2f} s)\n", end="", flush=True)
godwit.barrier()

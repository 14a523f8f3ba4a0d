"""Checks of samples that every rank runs.  `godwit run -n 4 --node-size 1 sampling_values.py`

Each function is a check; a rank prints which passed.  They use NumPy alone, so that jobs start quickly, and hold for any
number of nodes, also one.  Seeds are fixed.  GODWIT_SAMPLES says how many keys are drawn in each check of a distribution, by all
workers together.
"""

from __future__ import annotations

import os
import pickle
import sys

import numpy as np

import godwit

me = godwit.init()
N_KEYS, MIN, MAX = 1200, 100, 1100
POOL, REUSE = 250, 16
DRAWS = int(os.environ.get("GODWIT_SAMPLES", "1024000"))  # whole pools, on up to 8 ranks
AHEAD = 3
LIMIT = 3.5  # of a normal variable


def of_all(mine: object) -> list:
    """What every rank gives, in the order of ranks."""
    for rank in range(me.size):
        godwit.send(rank, pickle.dumps(mine))
    return [pickle.loads(godwit.recv(rank)) for rank in range(me.size)]


def weights_of(distribution: str) -> np.ndarray:
    """Of keys MIN to MAX - 1, in proportion to their probability."""
    i = np.arange(MAX - MIN)
    if distribution == "uniform":
        return np.ones(MAX - MIN)
    if distribution == "log-uniform":
        return np.log((i + 2) / (i + 1))
    return np.where(i % 5 == 3, 0, (1 + i * 7919 % (MAX - MIN)) ** -0.75)  # some have none


def chi_normal(weights: np.ndarray, counts: np.ndarray, uses: int = 1) -> float:
    """Pearson's statistic as a normal variable (Wilson and Hilferty).  Each independent draw counts `uses` times, which makes
    the statistic so many times as large.  Few draws are expected of no key here."""
    expected = weights / weights.sum() * counts.sum()
    assert not counts[weights == 0].any(), "a key without weight was drawn"
    expected, counts = expected[weights > 0], counts[weights > 0]
    assert expected.min() > 5 * uses
    chi, k = ((counts - expected) ** 2 / expected).sum() / uses, len(counts) - 1
    return ((chi / k) ** (1 / 3) - (1 - 2 / (9 * k))) / np.sqrt(2 / (9 * k))


def opened(scheme: str, distribution: str, seed: int, **more: object) -> tuple[godwit.Parameters, godwit.Worker]:
    """Vectors hold their keys."""
    kv = godwit.Parameters(N_KEYS, 2)
    w = kv.worker()
    given = {"weights": weights_of("weights")} if distribution == "weights" else {"distribution": distribution}
    kv.enable_sampling(scheme, **given, min=MIN, max=MAX, pool_size=POOL, reuse=REUSE, seed=seed, **more)
    w.begin_setup()
    mine = np.arange(me.rank, N_KEYS, me.size)
    w.set(mine, np.repeat(mine.astype(np.float32), 2))
    w.end_setup()
    return kv, w


def drawn(w: godwit.Worker, n_draws: int, n: int, start: bool = True) -> np.ndarray:
    """All keys of samples of `n`, pulled in portions, prepared some clocks ahead."""
    n_samples, clock = n_draws // n, w.current_clock
    found = np.empty((n_samples, n), np.int64)
    values = np.empty((n, 2), np.float32)
    handles = []
    for i in range(n_samples + AHEAD):
        if i < n_samples:
            handles.append(w.prepare_sample(n, clock + i) if start else w.prepare_sample(n))
        if i < AHEAD:
            continue
        keys, cut = found[i - AHEAD], n // 3
        w.pull_sample(handles[i - AHEAD], keys[:cut], values[:cut])
        w.wait(w.pull_sample(handles[i - AHEAD], keys[cut:], values[cut:], True))
        assert (values == keys[:, None]).all(), "values are not those of the keys"
        w.advance_clock()
    return found


def counts_of(keys: np.ndarray) -> np.ndarray:
    assert keys.min() >= MIN and keys.max() < MAX
    return sum(of_all(np.bincount(keys.ravel() - MIN, minlength=MAX - MIN)))


def check_fit(scheme: str) -> None:
    for number, distribution in enumerate(("uniform", "log-uniform", "weights")):
        kv, w = opened(scheme, distribution, seed=10 * number + len(scheme))
        keys = drawn(w, DRAWS // me.size, 2 * POOL * REUSE)
        weights = weights_of(distribution)
        z = [chi_normal(weights, counts_of(keys), REUSE if scheme == "pool" else 1)]
        if scheme == "pool":  # the draws themselves: the first time that each pool is gone through
            pools = keys.reshape(-1, REUSE, POOL)
            assert (np.sort(pools, axis=2) == np.sort(pools[:, :1], axis=2)).all(), "a draw is not used equally often"
            z.append(chi_normal(weights, counts_of(pools[:, 0])))
        assert all(abs(one) < LIMIT for one in z), (scheme, distribution, z)
        if me.rank == 0:
            print(f"fit: {scheme} {distribution} {me.size} ranks: {' '.join(f'{one:.2f}' for one in z)}", flush=True)
        kv.close()


def check_naive_draws_as_the_distribution_says() -> None:
    check_fit("naive")


def check_preloc_draws_as_the_distribution_says() -> None:
    check_fit("preloc")


def check_pool_draws_as_the_distribution_says_and_uses_draws_again() -> None:
    check_fit("pool")


def check_without_replacement_no_key_comes_twice_in_a_sample() -> None:
    for scheme in ("naive", "preloc", "local"):
        for distribution in ("uniform", "log-uniform", "weights"):
            kv, w = opened(scheme, distribution, seed=5, replacement=False)
            n = 100 if scheme == "local" else 400  # with local only those that are here
            for sample in drawn(w, 20 * n, n):
                assert len(set(sample.tolist())) == n, (scheme, distribution)
            if scheme != "local":
                possible = int((weights_of(distribution) > 0).sum())
                everything = drawn(w, 2 * possible, possible)
                assert (np.sort(everything) == MIN + np.flatnonzero(weights_of(distribution))).all()
            kv.close()


def check_a_worker_draws_the_same_for_a_seed_whatever_the_portions() -> None:
    for scheme in ("naive", "preloc", "pool"):
        found = []
        for seed, start in ((1, True), (1, False), (2, True)):
            kv, w = opened(scheme, "log-uniform", seed)
            found.append(drawn(w, 3000, 300, start))
            kv.close()
        assert (found[0] == found[1]).all() and (found[0] != found[2]).any(), scheme
        each = of_all(found[0])
        assert all((each[0] != other).any() for other in each[1:]), "two workers draw the same"


def check_pool_moves_fewer_keys_than_preloc() -> None:
    moves = {}
    for scheme in ("preloc", "pool"):
        kv = godwit.Parameters(200_000, 1)
        kv.enable_sampling(scheme, seed=3, pool_size=POOL, reuse=REUSE)
        w = kv.worker()
        w.end_setup()
        keys, values = np.empty(500, np.int64), np.empty(500, np.float32)
        for _ in range(40):
            h = w.prepare_sample(500, w.current_clock)
            w.pull_sample(h, keys, values)
            w.advance_clock()
        w.wait_sync()
        w.barrier()
        moves[scheme] = kv.stats(total=True)["moves"] + kv.stats(total=True)["grants"]
        kv.close()
    if me.nodes > 1:
        assert moves["preloc"] > 0 and moves["pool"] * 4 < moves["preloc"], moves


def check_local_draws_what_is_here_in_proportion() -> None:
    kv, w = opened("local", "log-uniform", seed=9)
    w.barrier()
    here = w.is_local(np.arange(MIN, MAX))
    keys = drawn(w, 100_000, 1000)
    found = np.bincount(keys.ravel() - MIN, minlength=MAX - MIN)
    z = chi_normal(np.where(here, weights_of("log-uniform"), 0), found)
    assert abs(z) < LIMIT, z
    w.barrier()
    assert kv.stats(total=True)["keys_remote"] == 0
    if me.nodes > 1:
        w.barrier()
        w.localize(np.arange(MIN, MAX)) if me.rank == 0 else None
        w.barrier()
        if w.is_local(np.arange(MIN, MAX)).any():
            assert drawn(w, 3000, 1000).min() >= MIN
        else:
            try:
                drawn(w, 1000, 1000)
                raise AssertionError("there was nothing to draw")
            except godwit.WrongState as error:
                assert "are on this node now" in str(error)
        w.barrier()
    kv.close()


def check_ranks_that_disagree_are_all_refused() -> None:
    if me.size == 1:
        return
    kv = godwit.Parameters(100, 1)
    last = me.rank == me.size - 1
    for different, kind in (({"scheme": "pool"}, godwit.RanksDisagree), ({"seed": 7}, godwit.RanksDisagree),
                            ({"weights": np.ones(100)}, godwit.RanksDisagree), ({"scheme": "nonsense"}, godwit.InvalidValue),
                            ({"weights": [1.0] * 99}, godwit.InvalidValue), ({"max": -1}, godwit.OutOfRange),
                            ({"weights": ["a"] * 100}, godwit.InvalidType)):
        try:
            kv.enable_sampling(**different if last else {})
            raise AssertionError(f"{different} was accepted")
        except godwit.Error as error:
            assert isinstance(error, kind if last else godwit.RanksDisagree), repr(error)
            assert last or f"rank {me.size - 1}" in str(error), error
    kv.enable_sampling("local")
    kv.close()


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for name, check in list(globals().items()):
        if name.startswith("check_") and name != "check_fit" and (not wanted or any(one in name for one in wanted)):
            check()
            print(f"passed: {name}", flush=True)

"""roundtrip.py - the first program: some processes find each other, talk, and check what they heard.

    godwit run -n 4 apps/roundtrip.py          (what `make demo` runs)
    torchrun --nproc-per-node 4 apps/roundtrip.py
    python apps/roundtrip.py                   a world of one: a rank may write to itself

Every rank says who it is; a small message travels around the ring and collects names; then every rank
sends a big message to every other, and rank 0 prints what was exchanged and how fast.
"""

import argparse
import json
import os
import random
import time

import godwit


def around_the_ring(me) -> str:
    """A note goes 0, 1, 2, ... and back to 0; each rank signs it and passes it on."""
    before, after = (me.rank - 1) % me.size, (me.rank + 1) % me.size
    if me.rank == 0:
        godwit.send(after, b"0")
        return godwit.recv(before).decode() + " -> 0"
    note = godwit.recv(before).decode()
    godwit.send(after, f"{note} -> {me.rank}".encode())
    return note


def letter(writer: int, reader: int, n_bytes: int) -> bytes:
    """What one rank writes to another: random bytes, and both can tell which."""
    return random.Random(f"from {writer} to {reader}").randbytes(n_bytes)


def everyone_to_everyone(me, n_bytes: int) -> list[tuple[int, float]]:
    """Send a letter to every other rank and check theirs; return bytes and seconds per rank they came from.

    In round k everybody writes to the k-th rank after it, so that each has one letter to send and one to
    receive. All may send before any receives: a send that waits for room takes in what arrives meanwhile.
    """
    received = [(0, 0.0)] * me.size
    for step in range(1, me.size):
        reader, writer = (me.rank + step) % me.size, (me.rank - step) % me.size
        outgoing = letter(me.rank, reader, n_bytes)
        expected = letter(writer, me.rank, n_bytes)

        seconds = float("inf")
        for _ in range(3):  # the first time also pays for fresh memory
            godwit.barrier()
            started = time.perf_counter()
            godwit.send(reader, outgoing)
            incoming = godwit.recv(writer)
            seconds = min(seconds, time.perf_counter() - started)
            if incoming != expected:
                raise SystemExit(f"rank {me.rank}: the letter from rank {writer} arrived damaged")
        received[writer] = (len(incoming), seconds)
    return received


def gather(me, mine: list) -> list[list]:
    """Rank 0 gets what every rank has to tell, in order of rank; the others get nothing."""
    if me.rank != 0:
        godwit.send(0, json.dumps(mine).encode())
        return []
    return [mine] + [json.loads(godwit.recv(peer)) for peer in range(1, me.size)]


def table(title: str, ranks: range, cell) -> str:
    """A square of figures, a row per sender and a column per receiver."""
    lines = [title, "  from \\ to" + "".join(f"{f'rank {reader}':>9}" for reader in ranks)]
    for writer in ranks:
        cells = (cell(writer, reader) if writer != reader else "." for reader in ranks)
        lines.append(f"  {f'rank {writer}':<9}" + "".join(f"{text:>9}" for text in cells))
    return "\n".join(lines)


def report(note: str, received: list[list]) -> None:
    """received[reader][writer] is (bytes, seconds)."""

    def megabytes(writer: int, reader: int) -> str:
        return f"{received[reader][writer][0] / 1e6:.1f}"

    def gigabytes_per_second(writer: int, reader: int) -> str:
        n_bytes, seconds = received[reader][writer]
        return f"{n_bytes / seconds / 1e9:.2f}"

    n = len(received)
    if n == 1:
        print("\nThis is a world of one. With `godwit run -n 4` in front there is more to see.")
        return
    total = sum(n_bytes for row in received for n_bytes, _ in row)
    print(f"\nA note went around the ring: {note}")
    print(table("\nMB received, and found to be as sent", range(n), megabytes))
    print(table(f"\nGB/s, the fastest of three, with {n} letters on their way at a time", range(n), gigabytes_per_second))
    print(f"\n{n} ranks exchanged {n * (n - 1)} letters, {total / 1e6:.0f} MB together. All arrived as sent.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Let all ranks of a job talk to each other.")
    parser.add_argument("--megabytes", type=int, default=8, help="length of the big messages (default 8)")
    n_bytes = parser.parse_args().megabytes * 1_000_000

    godwit.init()
    me = godwit.world()
    print(f"I am rank {me.rank} of {me.size}, on node {me.node} of {me.nodes}, process {os.getpid()}", flush=True)
    godwit.barrier()

    note = around_the_ring(me)
    received = gather(me, everyone_to_everyone(me, n_bytes))
    godwit.barrier()
    if me.rank == 0:
        report(note, received)


if __name__ == "__main__":
    main()

"""Word vectors by skip-gram with negative sampling, on many processes; the inner loop is C on Godwit's C API.

    godwit run -n 4 apps/word2vec --generate                  a made-up text with analogies in it: no data needed
    godwit run -n 4 apps/word2vec --text FILE                 a sentence in each line, blanks between words
    godwit run -n 4 --node-size 1 apps/word2vec ...           as if every process were a machine of its own
    python apps/word2vec --nearest king --vectors FILE        the words that are nearest to one; trains nothing

This file is about options and what one sees; word2vec.h says what is where in C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from native import Failed, Job, Options, Plan, Vectors, load

from godwit import training
from godwit.show import say, speaker, table

SCHEMES = ["naive", "preloc", "pool", "local"]
PORTION = 20_000  # words of the text between two looks at Ctrl-C and at the bar


def parse_options() -> argparse.Namespace:
    parser = training.options("word2vec", __doc__.split("\n\n")[0], epochs=5, ahead=30, evaluate_every=1, save_every=1)
    next(action for action in parser._actions if action.dest == "threads").help = argparse.SUPPRESS  # PyTorch is not used
    data = parser.add_argument_group("data")
    data.add_argument("--text", type=Path, metavar="FILE", help="a sentence in each line, blanks between words")
    data.add_argument("--generate", action="store_true", help="make a text up, and questions that it answers")
    data.add_argument("--words", type=int, default=1_000_000, help="of the text that is made up")
    data.add_argument("--vocabulary", type=int, default=5000, help="different words of the text that is made up")
    data.add_argument("--min-count", type=int, default=5, help="words that occur less often are left out")
    data.add_argument("--most-words", type=int, default=0, help="of the vocabulary; 0: no limit")
    data.add_argument("--analogies", type=Path, metavar="FILE", help="questions: lines of four words, b is to a as d is to c")
    data.add_argument("--among", type=int, default=30_000, metavar="N", help="answers are sought among the N most frequent "
                      "words")
    model = parser.add_argument_group("model")
    model.add_argument("--dim", type=int, default=100, help="entries of a vector")
    model.add_argument("--window", type=int, default=5, help="words before and after, at most")
    model.add_argument("--negatives", type=int, default=5, help="words that each is compared with")
    model.add_argument("--sample", type=float, default=1e-3, help="more frequent words are left out by chance; 0: none is")
    model.add_argument("--rate", type=float, default=0.025, help="of learning, at the beginning")
    model.add_argument("--least-rate", type=float, default=1e-4)
    model.add_argument("--block", type=int, default=512, help="words that are trained between a pull and a push")
    model.add_argument("--share", type=int, default=5, help="so many words of a block share a drawn negative")
    model.add_argument("--sampling", choices=SCHEMES, help="scheme (default: preloc; naive if nothing is announced)")
    out = parser.add_argument_group("vectors")
    out.add_argument("--format", choices=["text", "binary", "both"], default="both", help="of the vectors that are written")
    out.add_argument("--nearest", action="append", default=[], metavar="WORD", help="print the words nearest to it; may be "
                     "given several times")
    out.add_argument("--vectors", type=Path, metavar="FILE", help="of an earlier run, for --nearest: .txt or .bin")
    options = training.parse(parser)
    if [options.generate, options.text is not None, options.vectors is not None].count(True) != 1:
        parser.error("give one of --text FILE, --generate, and --vectors FILE")
    if options.vectors is not None and not options.nearest:
        parser.error("--vectors is for --nearest WORD")
    options.sampling = options.sampling or ("preloc" if options.ahead > 0 else "naive")
    return options


def native_options(options: argparse.Namespace) -> Options:
    same = ("dim", "window", "negatives", "epochs", "block", "share", "ahead", "rate", "least_rate", "sample", "min_count",
            "most_words", "seed")
    return Options(scheme=SCHEMES.index(options.sampling), **{name: getattr(options, name) for name in same})


def read(job: Job, options: argparse.Namespace, directory: Path) -> None:
    """Read the text, which is made up before if it is to be."""
    if options.generate:
        directory.mkdir(parents=True, exist_ok=True)
        options.text, options.analogies = directory / "text.txt", directory / "analogies.txt"
        say(f"making a text of {options.words:,} words up")
        job.generate(Plan(options.words, options.vocabulary, 8, 25, 3, 1000, options.seed), options.text, options.analogies)
    job.read(options.text)
    say(f"{options.text}: {job.text_words:,} words, {job.words:,} different ones\n"
        f"dim {options.dim}, {job.size} process{'es' * (job.size > 1)}, {job.nodes} node{'s' * (job.nodes > 1)}")


def measure(job: Job, options: argparse.Namespace) -> dict[str, float]:
    if options.analogies is None:
        return {}
    asked, found = job.analogies(options.analogies, options.among)
    if asked == 0:
        raise Failed(f"{options.analogies} asks about no four words that are all among the {options.among:,} most frequent")
    return {"analogies": found / asked}


def write(job: Job, options: argparse.Namespace, directory: Path) -> Path:
    for suffix, binary in ((".txt", False), (".bin", True)):
        if options.format in ("both", "binary" if binary else "text"):
            path = directory / f"vectors{suffix}"
            job.write(path, binary)
            say(f"vectors: {path}")
    return path


def print_nearest(lib, path: Path, words: list[str]) -> None:
    vectors = Vectors(lib, path)
    for word in words:
        say("\n" + table([word, "cosine"], [[other, f"{cosine:.3f}"] for other, cosine in vectors.nearest(word, 10)]))
    vectors.close()


def train(lib, job: Job, options: argparse.Namespace) -> None:
    speaker(job.rank == 0)
    directory = options.output or Path(f"word2vec-{options.text.stem if options.text else 'generated'}")
    read(job, options, directory)
    run = training.Training(options, job, job, name=directory.name, items="words", ranks=job,
                            measures={"analogies": "analogies"} if options.analogies else {})
    n_portions = job.text_words // job.size // PORTION
    if run.epochs(lambda epoch: job.train(epoch, PORTION), n_portions, lambda: measure(job, options)):
        path = write(job, options, directory)
        if job.rank == 0:
            print_nearest(lib, path, options.nearest)
    run.end()


def main() -> None:
    options = parse_options()
    try:
        lib = load()
        if options.vectors is not None:
            print_nearest(lib, options.vectors, options.nearest)
        else:
            with Job(lib, native_options(options)) as job:
                train(lib, job, options)
    except Failed as error:
        sys.exit(f"word2vec: {error}")


if __name__ == "__main__":
    main()

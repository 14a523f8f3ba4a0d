"""What gensim does with a text: run by run.py with the Python of gensim's own environment.

    python peer.py THREADS TEXT QUESTIONS SETTINGS        settings are JSON; prints a line of JSON
"""

import json
import sys
import time

import gensim
from gensim.models import Word2Vec


def main() -> None:
    threads, text, questions, settings = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    model = Word2Vec(vector_size=settings["dim"], window=settings["window"], negative=settings["negatives"], sg=1,
                     sample=settings["sample"], alpha=settings["rate"], min_alpha=settings["least-rate"],
                     min_count=settings["min-count"], workers=threads, seed=1)
    model.build_vocab(corpus_file=text)
    words = model.corpus_total_words
    start, start_cpu = time.monotonic(), time.process_time()
    model.train(corpus_file=text, total_words=words, epochs=settings["epochs"])
    seconds, cpu = time.monotonic() - start, time.process_time() - start_cpu
    found, _ = model.wv.evaluate_word_analogies(questions, restrict_vocab=settings["among"], case_insensitive=False)
    print(json.dumps({"version": gensim.__version__, "words_per_s": words * settings["epochs"] / seconds, "seconds": seconds,
                      "cpu_s": cpu, "words": words, "vocabulary": len(model.wv), "analogies": found}))


if __name__ == "__main__":
    main()

"""godwit.training and godwit.show in a world of one: options and configs, epochs and checkpoints, bars and tables."""

import importlib.util
import io
import json
import os
import signal

import pytest

import godwit
from godwit import show

torch = pytest.importorskip("torch")
from godwit import training  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def world():
    godwit.init()
    yield
    godwit.close()


# ---- options ---------------------------------------------------------------------------------------


def parse(*words, **defaults):
    parser = training.options("toy", **defaults)
    parser.add_argument("--learning-rate", type=float, default=0.5)
    return training.parse(parser, [str(word) for word in words])


def test_the_command_line_wins_over_the_config_and_that_over_defaults(tmp_path):
    config = tmp_path / "toy.json"
    config.write_text('{"epochs": 7, "learning-rate": 0.25}')
    assert (parse(epochs=9).epochs, parse(epochs=9).learning_rate) == (9, 0.5)
    found = parse("--config", config, "--epochs", 3, epochs=9)
    assert (found.epochs, found.learning_rate) == (3, 0.25)


@pytest.mark.parametrize("text, words", [('{"epoch": 7}', "there is no option epoch"), ("[1]", "it must hold"),
                                         ("{", "toy.json: Expecting")])
def test_a_config_that_makes_no_sense_is_refused(text, words, tmp_path, capsys):
    (tmp_path / "toy.json").write_text(text)
    with pytest.raises(SystemExit):
        parse("--config", tmp_path / "toy.json")
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--save-every", 0), ("--evaluate-every", -1), ("--ahead", -2)])
def test_numbers_out_of_range_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        parse(*words)
    assert f"{words[0]} {words[1]}: it must be" in capsys.readouterr().err


def test_a_program_says_what_its_own_options_must_be(capsys):
    parser = training.options("toy")
    parser.add_argument("--batch-size", type=int, default=0)
    training.at_least(parser, training.parse(parser, ["--batch-size", "3"]), batch_size=3)
    with pytest.raises(SystemExit):
        training.at_least(parser, training.parse(parser, []), batch_size=3)
    assert "--batch-size 0: it must be 3 or more" in capsys.readouterr().err


# ---- epochs ----------------------------------------------------------------------------------------


@pytest.fixture
def kv():
    with godwit.Parameters(num_keys=4, lengths=1) as params, params.worker() as worker:
        yield params, worker


def add_ones(worker, n=2):
    for _ in range(n):
        worker.push(torch.arange(4), torch.ones(4, 1))
        yield 0.5, 4


def make(kv, *words):
    return training.Training(parse(*words), *kv, name="toy", items="rows", measures={"sum": "sum"})


def total(worker):
    values = torch.empty(4, 1)
    worker.pull(torch.arange(4), values)
    return values.sum().item()


def test_epochs_are_measured_saved_and_gone_on_with(kv, tmp_path, capsys):
    words = ("--output", tmp_path, "--evaluate-every", 2, "--save-every", 2)
    run = make(kv, *words, "--epochs", 3)
    assert run.epochs(lambda _: add_ones(kv[1]), 2, lambda: {"sum": total(kv[1])})
    run.end()
    assert [seen["sum"] for seen in run.history] == [None, 16, 24]
    assert [seen["loss"] for seen in run.history] == [0.5] * 3
    drawn = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "training.png").exists() == drawn
    assert ("no picture: matplotlib is not installed" in capsys.readouterr().out) == (not drawn)
    kv[1].set(torch.arange(4), torch.zeros(4, 1))
    run = make(kv, *words, "--epochs", 4, "--resume")
    assert run.first == 4 and total(kv[1]) == 24
    assert run.epochs(lambda _: add_ones(kv[1]), 2, lambda: {"sum": total(kv[1])})
    run.end()
    assert [seen["epoch"] for seen in json.loads((tmp_path / "history.json").read_text())] == [1, 2, 3, 4]


def test_ctrl_c_ends_the_epoch_after_the_batch_at_hand(kv, tmp_path, capsys):
    before = signal.getsignal(signal.SIGINT)
    run = make(kv, "--output", tmp_path, "--epochs", 5)

    def batches(epoch):
        yield from add_ones(kv[1], 1)
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)
        yield from add_ones(kv[1], 1)
        yield from add_ones(kv[1], 1 if epoch == 2 else 0)

    assert not run.epochs(batches, 2, lambda: {"sum": 0.0})
    run.end()
    assert total(kv[1]) == 16 and [seen["epoch"] for seen in run.history] == [1]
    assert "stopped in epoch 2" in capsys.readouterr().out
    assert make(kv, "--output", tmp_path, "--epochs", 5, "--resume").first == 2
    signal.signal(signal.SIGINT, before)


# ---- what one sees ---------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch):
    for out, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr("sys.stdout", out)
        bar = show.Bar("epoch 1", 4)
        for _ in range(4):
            bar.text = "half" if bar.done < 2 else "all"
            bar.advance()
        assert ("█" * 28 + " all" in out.getvalue()) == drawn
        bar.clear()
        assert out.getvalue().endswith("\r\x1b[K") == drawn


def test_a_process_that_joined_from_c_is_told_whether_it_speaks(monkeypatch, capsys):
    monkeypatch.setattr(show, "_told", None)
    show.speaker(False)
    show.say("not heard")
    assert not show.speaks() and capsys.readouterr().out == ""
    show.speaker(True)
    show.say("heard")
    assert show.speaks() and capsys.readouterr().out == "heard\n"


def test_ranks_of_a_program_that_joined_from_c_are_asked(kv, tmp_path):
    class Two(training.Ranks):
        size = 2

        def sums(self, values):
            return [2 * value for value in values]

        def largest(self, values):
            return list(values)

    options = parse("--epochs", 1, "--output", tmp_path)
    run = training.Training(options, *kv, name="toy", items="rows", measures={"sum": "sum"}, ranks=Two())
    assert run.epochs(lambda epoch: iter([(0.5, 3), (1.5, 3)]), 2, lambda: {"sum": 0.0})
    run.end()
    seen = run.history[0]
    assert seen["loss"] == 1.0 and seen["items_per_s"] * seen["seconds"] == pytest.approx(12)

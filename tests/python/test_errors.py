"""Godwit's exceptions: one for each error of the C library, and Python's own kind too."""

import pickle

import pytest

import godwit
from godwit import _native

KINDS = {
    "OutOfMemory": MemoryError,
    "InvalidValue": ValueError,
    "InvalidType": TypeError,
    "OutOfRange": IndexError,
    "TimedOut": TimeoutError,
    "RankLost": ConnectionError,
    "WrongState": RuntimeError,
    "SystemFailure": OSError,
    "Unsupported": NotImplementedError,
    "Interrupted": InterruptedError,
    "RanksDisagree": RuntimeError,
    "NotNow": BlockingIOError,
    "BrokenMessage": ConnectionError,
}


def test_every_error_of_the_library_has_a_class_and_a_number_of_its_own():
    classes = _native.error_classes()
    assert {kind.__name__ for _, _, kind in classes} == set(KINDS)
    assert len({number for number, _, _ in classes}) == len(classes)
    assert all(number < 0 and name.startswith("E") for number, name, _ in classes)


@pytest.mark.parametrize("name", KINDS)
def test_an_error_can_be_caught_as_godwits_and_as_pythons(name):
    kind = getattr(godwit, name)
    assert issubclass(kind, godwit.Error)
    assert issubclass(kind, KINDS[name])
    assert kind.__module__ == "godwit" and name in godwit.__all__


@pytest.mark.parametrize("name", KINDS)
def test_an_error_shows_its_sentence_and_can_be_pickled(name):
    error = getattr(godwit, name)("rank 3 has not arrived")
    assert str(error) == "rank 3 has not arrived"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error)


def test_the_librarys_sentence_reaches_the_exception(monkeypatch):
    monkeypatch.setenv("GODWIT_SIZE", "100% m\u00fcll")
    with pytest.raises(godwit.InvalidValue, match="GODWIT_SIZE.*100% m\u00fcll"):
        _native.plan(None, None, None, None, None)


def test_a_sentence_that_is_no_text_is_shown_as_far_as_it_goes(monkeypatch):
    monkeypatch.setenv("GODWIT_SIZE", "\udcff\udcfe")
    with pytest.raises(godwit.InvalidValue, match="GODWIT_SIZE"):
        _native.plan(None, None, None, None, None)

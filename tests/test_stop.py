"""An interrupt comes up where it tears nothing."""

import os
import signal

import pytest

from evokernel.graphs.stop import Stop


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def stop():
    """A stop that answers; a late signal would end the tests."""
    stop = Stop()
    with stop.answering():
        yield stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_comes_up_at_once_while_others_work(stop, number):
    with pytest.raises(KeyboardInterrupt), stop.waiting():
        interrupt(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_waits_for_the_next_node_otherwise(stop, number):
    interrupt(number)
    with pytest.raises(KeyboardInterrupt):
        stop.check()


def test_nothing_new_begins_after_an_interrupt(stop):
    interrupt()
    begun = []
    with pytest.raises(KeyboardInterrupt), stop.waiting():
        begun.append("a measurement")
    assert not begun


def test_interrupt_after_waiting_waits_again(stop):
    with stop.waiting():
        pass
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        stop.check()


def test_second_interrupt_comes_up_anywhere(stop):
    interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def swallow():
    """What serializers in C do with an interrupt: an error of their own."""
    try:
        interrupt()
    except KeyboardInterrupt as error:
        raise ValueError(f"cannot be serialized: {error!r}") from None


def test_what_a_library_makes_of_a_second_interrupt_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), Stop().answering():
        [interrupt(), swallow()]


def test_errors_after_one_interrupt_stay_errors():
    with pytest.raises(ValueError, match="broken"), Stop().answering():
        [interrupt(), int("broken")]


def test_nobody_asked_means_no_stop():
    Stop().check()


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Stop().answering():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stop().answering():
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)

"""Locks that the child of a fork can take, whoever held them."""

from __future__ import annotations

import os
import threading

import pytest

from monograph.ir.dims import Symbol, polynomial
from monograph.runtime.locks import ForkedLock

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")


def held_elsewhere(lock: ForkedLock) -> threading.Event:
    """Let another thread hold a lock until the event is set."""
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            holds.set()
            done.wait(60)

    threading.Thread(target=hold, daemon=True).start()
    assert holds.wait(60)
    return done


def is_taken_in_child(lock: ForkedLock) -> bool:
    """Whether a child gets the lock in time."""
    child = os.fork()
    if child == 0:
        taker = threading.Thread(target=lambda: lock.__enter__(), daemon=True)
        taker.start()
        taker.join(10)
        os._exit(int(taker.is_alive()))
    return os.waitpid(child, 0)[1] == 0


@forks
def test_a_child_finds_a_lock_open_that_another_thread_held() -> None:
    lock = ForkedLock()
    done = held_elsewhere(lock)
    assert is_taken_in_child(lock)
    done.set()


def test_a_thread_may_take_its_lock_again() -> None:
    lock = ForkedLock()
    with lock, lock:
        pass
    held_elsewhere(lock).set()


def test_others_wait_for_a_lock() -> None:
    lock = ForkedLock()
    done = held_elsewhere(lock)
    got = threading.Event()

    def take() -> None:
        with lock:
            got.set()

    threading.Thread(target=take, daemon=True).start()
    assert not got.wait(0.05)
    done.set()
    assert got.wait(60)


def test_a_finalizer_may_make_a_size_while_one_is_made() -> None:
    with polynomial._interned_lock:
        assert str(Symbol("made_meanwhile") * 3) == "3*made_meanwhile"

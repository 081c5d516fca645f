"""Work that may wait: it is known for such, and its threads run when no other wants to."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from monograph.priority import LOWEST_PRIORITY, lower_this_thread, may_wait
from monograph.specialize import background


def test_work_in_the_background_may_wait_and_calls_may_not() -> None:
    seen: list[bool] = []
    background.submit(lambda: seen.append(may_wait()))
    assert background.wait(60)
    assert seen == [True]
    assert not may_wait()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_a_thread_is_lowered_alone() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()
    with ThreadPoolExecutor(1, initializer=lower_this_thread) as pool:
        assert pool.submit(priority).result() == LOWEST_PRIORITY
    assert priority() == before

"""How long a call may take: a deadline that holds for everything that happens inside it.

    with monograph.time_limit(2.0):
        compiled(x)

Loops look at it as they turn (compiled ones about every hundredth of a second), the interpreter
before every node. What is neither, one large kernel or a part that a call compiles, is not broken
off: the next loop or node after it finds that the time is up.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from monograph.config import timeout_setting
from monograph.errors import InputError, TimeLimitError

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
"""By ``time.monotonic``, and the seconds that were given are not needed again."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let calls in this block and thread take so many seconds, all of them together.

    A limit inside another can only be shorter. It holds instead of ``MONOGRAPH_TIMEOUT``, which is
    for each call that has no limit; ``math.inf`` is none.
    """
    check_timeout(seconds)
    before = _deadline.get()
    wanted = time.monotonic() + seconds
    token = _deadline.set(wanted if before is None else min(before, wanted))
    try:
        yield
    finally:
        _deadline.reset(token)


def call_limited(
    call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """A call whose ``timeout`` is among the named arguments, and is not the function's own."""
    seconds = named.pop("timeout")
    with nullcontext() if seconds is None else time_limit(seconds):
        return call(*arguments, **named)


@contextmanager
def call_limit() -> Iterator[None]:
    """The limit that the environment sets for a call, unless the call has one already."""
    seconds = None if _deadline.get() is not None else timeout_setting(os.environ)
    if seconds is None:
        yield
        return
    with time_limit(seconds):
        yield


def has_deadline() -> bool:
    """Whether there is a limit here, that of the environment aside."""
    return _deadline.get() is not None


def remaining() -> float | None:
    """The seconds that are left; None if there is no limit. An error if there are none left."""
    deadline = _deadline.get()
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise out_of_time()
    return left


def check_time() -> None:
    """Raise an error if the time is up."""
    deadline = _deadline.get()
    if deadline is not None and time.monotonic() >= deadline:
        raise out_of_time()


def out_of_time() -> TimeLimitError:
    """The error of a call that took too long."""
    return TimeLimitError(
        "the call took longer than its time limit",
        hint="a loop may have no end; timeout= of the call, monograph.time_limit or "
        "MONOGRAPH_TIMEOUT set the limit",
    )


def check_timeout(seconds: object) -> None:
    """Refuse what is no number of seconds."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and not math.isnan(seconds) and seconds > 0:  # type: ignore[arg-type, operator]
        return
    raise InputError(
        "timeout is not a number of seconds",
        expected="a number above 0; math.inf is no limit",
        found=repr(seconds),
    )

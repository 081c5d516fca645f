"""Work that several threads do at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


def on_threads(work: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Let each number be worked on by a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""Parallel compilation: a large program is split into parts, compiled on all processors.

Kernels do not call each other, so any of them may go into any part, and a part may be compiled
while the kernels of others are still being made. How a program is cut depends on its text alone: it
is the same on every machine. The objects of the parts are kept together as ``ar`` archives keep
them, and one object stays as it is.

Kernels whose texts are the same but for their names are compiled once: two that pack weights of as
many rows, say, and differ in how many panels they are launched for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from monograph.config import processor_count
from monograph.errors import InputError
from monograph.priority import lower_this_thread, may_wait
from monograph.targets.cpu.machine import Compiled, Effort, Machine, compile_text

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

MIN_PART_CHARACTERS = 160_000
"""Characters of text that are worth a part of their own."""
MAX_PARTS = 16
MAGIC = b"!<arch>\n"
_HEADER = 60
_DEFINED = re.compile(r"^define (?!internal )(\w+) (@[^(]+)\(([^)]*)\)", re.MULTILINE)


class PartsInProgress:
    """The parts of a program; on leaving it, those that nobody waits for are given up.

    ``effort`` is for its kernels. A program of one part is always worth all of it.
    """

    def __init__(self, machine: Machine, attributes: str, effort: Effort = Effort.FULL) -> None:
        self._machine = machine
        self._effort = effort
        self._attributes = attributes
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[Compiled]] = []
        self._gathered: dict[str, str] = {}
        self._taken: set[str] = set()
        self._codes: dict[bytes, str] = {}

    def __enter__(self) -> PartsInProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the parts that nobody waits for."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def code(self, name: str, kernel: str) -> str:
        """The name of the kernel whose code this one runs: the first that had the same text."""
        nameless = kernel.replace(name, "")
        return self._codes.setdefault(hashlib.sha256(nameless.encode()).digest(), name)

    def gather(self, name: str, kernel: str, declarations: Iterable[str]) -> None:
        """Take a kernel that stays as it is; when there are enough for a part, that is begun."""
        if not self._may_be_several:
            return
        self._gathered[name] = kernel
        if (
            sum(map(len, self._gathered.values())) >= MIN_PART_CHARACTERS
            and len(self._begun) < MAX_PARTS // 2
        ):
            self._begin("\n".join(sorted(declarations)), self._gathered.values())
            self._taken |= self._gathered.keys()
            self._gathered = {}

    def compiled(
        self, declarations: str, kernels: Mapping[str, str], entry: str, *, has_loops: bool = True
    ) -> Compiled:
        """All kernels, by name, and the functions that launch them, in as many parts as pay.

        What launches many kernels, each of them once, is not worth optimising: it takes as long as
        several kernels do, and a call gains less than a microsecond.
        """
        left = [text for name, text in kernels.items() if name not in self._taken]
        size = sum(map(len, left)) if self._may_be_several else 0
        count = min(
            MAX_PARTS - len(self._begun), size // MIN_PART_CHARACTERS + 1, max(len(left), 1)
        )
        if count == 1 and not self._begun:
            whole = "\n".join((declarations, *left, entry, self._attributes))
            return compile_text(whole, self._machine)
        for part in _even_parts(left, count) if left else ():
            self._begin(declarations, part)
        launched = "\n".join(_declaration(kernel) for kernel in kernels.values())
        self._begin(declarations, (launched, entry), Effort.FULL if has_loops else Effort.NONE)
        return Compiled(archive([each.result().object for each in self._begun]))

    @property
    def _may_be_several(self) -> bool:
        return self._machine.triple.startswith("x86_64")  # where they are known to load

    def _begin(self, declarations: str, texts: Iterable[str], effort: Effort | None = None) -> None:
        from concurrent.futures import ThreadPoolExecutor  # which small programs do without

        if self._pool is None and may_wait():
            self._pool = ThreadPoolExecutor(1, initializer=lower_this_thread)
        elif self._pool is None:
            self._pool = ThreadPoolExecutor(processor_count())
        text = "\n".join((declarations, *texts, self._attributes))
        effort = effort or self._effort
        self._begun.append(self._pool.submit(compile_text, text, self._machine, effort=effort))


def _even_parts(kernels: Sequence[str], count: int) -> list[list[str]]:
    """Parts of about the same size; the largest first, since it takes the longest."""
    parts: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=len, reverse=True):
        smallest = sizes.index(min(sizes))
        parts[smallest].append(kernel)
        sizes[smallest] += len(kernel)
    return parts


def _declaration(kernel: str) -> str:
    """What another part has to say to launch a kernel."""
    return "\n".join(
        f"declare {result} {name}({', '.join(each.split()[0] for each in arguments.split(','))})"
        for result, name, arguments in _DEFINED.findall(kernel)
    )


def archive(objects: Sequence[bytes]) -> bytes:
    """Several objects as one."""
    members = []
    for number, each in enumerate(objects):
        header = f"{f'{number}.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(each):<10}`\n".encode()
        members.append(header + each + b"\n" * (len(each) % 2))
    return MAGIC + b"".join(members)


def objects_in(code: bytes) -> list[bytes]:
    """The objects of an archive; an object is its own only one."""
    if not code.startswith(MAGIC):
        return [code]
    found, begin = [], len(MAGIC)
    while begin < len(code):
        length = code[begin + 48 : begin + 58].strip()
        end = begin + _HEADER + (int(length) if length.isdigit() else len(code))
        if end > len(code):
            raise InputError("the object code is incomplete")
        found.append(code[begin + _HEADER : end])
        begin = end + end % 2
    return found

"""A large program is compiled in parts, on all processors at once.

Kernels do not call each other, so any of them may go into any part. How a program is cut depends on
its text alone: it is the same on every machine. The objects of the parts are kept together as
``ar`` archives keep them, and one object stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from monograph.errors import InputError
from monograph.targets.cpu.machine import Compiled, Machine, compile_text, processor_count

PART = 160_000
"""Characters of text that are worth a part of their own."""
MOST_PARTS = 16
MAGIC = b"!<arch>\n"
_HEADER = 60
_DEFINED = re.compile(r"^define (?!internal )(\w+) (@[^(]+)\(([^)]*)\)", re.MULTILINE)


def compile_parts(
    declarations: str, kernels: Sequence[str], entry: str, attributes: str, machine: Machine
) -> Compiled:
    """Compile kernels and the functions that launch them, in as many parts as are worth it."""
    size = sum(map(len, kernels)) if machine.triple.startswith("x86_64") else 0  # known to load
    count = min(MOST_PARTS, size // PART + 1, max(len(kernels), 1))
    if count == 1:
        return compile_text("\n".join((declarations, *kernels, entry, attributes)), machine)
    launched = "\n".join(_declaration(kernel) for kernel in kernels)
    texts = ["\n".join((declarations, *part, attributes)) for part in _even_parts(kernels, count)]
    texts.append("\n".join((declarations, launched, entry, attributes)))
    with ThreadPoolExecutor(min(processor_count(), len(texts))) as pool:
        found = list(pool.map(lambda text: compile_text(text, machine), texts))
    return Compiled(archive([each.object for each in found]))


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

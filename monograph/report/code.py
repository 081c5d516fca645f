"""The listings of a program, cut at its kernels: plan, loop nest, LLVM IR and assembly of each.

A listing is one text for the whole program; a report shows the part of one kernel, so each text is
cut where the definition of a kernel begins. What belongs to none (declarations, constants, the
entry points) is a part of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.listings import listing, sources
from monograph.runtime.compiled import Executable

MAX_LISTING_CHARACTERS = 400_000
"""How much of one kernel's listing a report holds."""
MAX_LINE_CHARACTERS = 2_000
"""How much of one line: a table of constants can be a single line of megabytes."""
PROGRAM = ""
"""The name of what belongs to no kernel."""


@dataclass(frozen=True)
class Listing:
    """One stage of a program as text, by kernel."""

    stage: str
    parts: dict[str, str]


_BEGINS = {
    "kernels": re.compile(r"^(?:kernel|# )\s*(?P<name>[\w.$]+)"),
    "nests": re.compile(r"^nest (?P<name>[\w.$]+)"),
    "llvm": re.compile(r'^define [^@]*@"?(?P<name>[\w.$]+)"?\('),
    "asm": re.compile(r'^"?(?P<name>[A-Za-z_][\w.$]*)"?:'),
}
"""How the first line of a kernel looks in each stage's text."""


def listings_of(executable: Executable, kernels: Sequence[str]) -> tuple[list[Listing], str]:
    """Each stage's text by kernel; or none, and why."""
    if not executable.is_explicable:
        reason = executable.report.specialised
        loaded = "this program was loaded: its listings are not stored with it"
        return [], loaded if reason is None else f"calls complete this program, since {reason}"
    found = []
    target = executable.target
    if target is not None and not target.name.startswith("cpu"):
        plans = plans_by_kernel(listing(executable, "plan"))
        parts = dict(cut(listing(executable, "kernels"), "kernels", kernels))
        source = Listing("source", sources(executable))
        return [Listing("plan", plans), Listing("kernels", parts), source], ""
    try:
        found.append(Listing("plan", plans_by_kernel(listing(executable, "plan"))))
        for stage in _BEGINS:
            text = listing(executable, stage)
            found.append(Listing(stage, dict(cut(text, stage, kernels))))
    except InputError as error:
        return [], str(error)
    return found, ""


_PLANNED = re.compile(r"^  kernel   (?P<name>[\w.$]+):", re.MULTILINE)


def plans_by_kernel(text: str) -> dict[str, str]:
    """The plans that each kernel carries out; one that equal layers share has several."""
    parts: dict[str, list[str]] = {}
    for plan in text.strip("\n").split("\n\n"):
        for name in dict.fromkeys(_PLANNED.findall(plan)):
            parts.setdefault(name, []).append(plan)
    return {name: shorten("\n\n".join(plans)) for name, plans in parts.items()}


def cut(text: str, stage: str, kernels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The text of each kernel, and of what belongs to none, in order of first appearance."""
    parts: dict[str, list[str]] = {PROGRAM: []}
    known = set(kernels)
    in_order = iter(kernels)
    owner = PROGRAM
    pending: list[str] = []
    for line in text.splitlines():
        match = _BEGINS[stage].match(line)
        if match is not None and stage == "kernels":  # its own name need not be the function's
            owner = next(in_order, PROGRAM)
        elif match is not None:
            owner = owner_of(match["name"], known)
        elif _precedes(stage, line):  # a comment or directive that belongs to what follows
            pending.append(line)
            continue
        parts.setdefault(owner, []).extend([*pending, shorten_line(line)])
        pending.clear()
    parts[owner].extend(pending)
    for name, lines in parts.items():
        whole = "\n".join(lines).strip("\n")
        yield name, shorten(whole)


def _precedes(stage: str, line: str) -> bool:
    if stage == "nests":
        return line.startswith("# ")
    return stage == "asm" and line.startswith(("\t.globl", "\t.p2align", "\t.type"))


def owner_of(symbol: str, kernels: set[str]) -> str:
    """The kernel that a function belongs to: ``k2_add.range`` to ``k2_add``."""
    if symbol in kernels:
        return symbol
    before = symbol.split(".")[0]
    return before if before in kernels else PROGRAM


def shorten_line(line: str) -> str:
    """The beginning of a line that nobody would read to its end."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]} … ({len(line):,} characters)"


def shorten(text: str) -> str:
    """The text, its middle left out if it is very long."""
    if len(text) <= MAX_LISTING_CHARACTERS:
        return text
    half = MAX_LISTING_CHARACTERS // 2
    left_out = text[half:-half].count("\n")
    return f"{text[:half]}\n\n… {left_out:,} lines left out …\n\n{text[-half:]}"

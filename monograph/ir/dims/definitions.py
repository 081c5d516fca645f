"""Names for the parts of expressions that grow: what keeps sizes short, whatever a model computes.

An atom of more than a few dozen symbols and numbers is *named*. Arithmetic sees it as before, but
in the text and the size of what is made of it, it counts as one symbol, and its definition is
written once, however often it occurs:

    let(_1, (a*b+…)//7, _2, max(_1*_1+…, 3), _1*n+_2)

Named atoms know one another by a *mark*, a digest of their definition, which is the same in every
run and is never printed. A sum too large for one polynomial becomes a sum of ``opaque(…)`` parts,
which are always named; arithmetic does not look inside those, so that it stays short as well. So
does a sum that something is computed of, once the expression with all its definitions has grown
very large (`polynomial.shortened`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monograph.ir.dims.polynomial import Atom, SymbolicDim

_MARK = re.compile(r"~[0-9a-f]{32}")


def mark_of(definition: str, ranges: Sequence[int]) -> str:
    """What stands for a named atom, of its text and the ranges of the symbols in that."""
    return "~" + blake2b(f"{definition} {ranges}".encode(), digest_size=16).hexdigest()


def merge_definitions(parts: Iterable[SymbolicDim]) -> tuple[Atom, ...]:
    """The named atoms of all parts, once each, and each after those that it refers to."""
    found: dict[Atom, None] = {}
    for part in parts:
        found.update(dict.fromkeys(part._list_definitions()))
    return tuple(found)


def let_text(dim: SymbolicDim, definitions: Sequence[Atom]) -> str:
    """The text of an expression with named atoms, their definitions in front."""
    taken = {symbol.name for symbol in dim.symbols()}
    unused = (name for number in count(1) if (name := f"_{number}") not in taken)
    names = {atom._key[0]: name for atom, name in zip(definitions, unused, strict=False)}

    def spelled(text: str) -> str:
        return _MARK.sub(lambda mark: names[mark[0]], text)

    parts = [
        f"{names[atom._key[0]]}, {spelled(atom._definition[0])}"
        for atom in definitions
        if atom._definition is not None
    ]
    return f"let({', '.join(parts)}, {spelled(dim._text())})"

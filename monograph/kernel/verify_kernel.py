"""Check that a kernel is well formed: names, dtypes and ranks agree, and every variable is bound.

What a schedule of it reads and writes is a matter of its loops: see ``verify`` and ``bounds``.
"""

from __future__ import annotations

from typing import NoReturn

from monograph.errors import GraphError
from monograph.ir.dims import Symbol
from monograph.ir.types import bool_
from monograph.kernel.expr import Buffer, Expr, Load, Variable, walk
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.text import expr_text


def verify_kernel(kernel: Kernel) -> None:
    """Raise a GraphError that names the first thing that is wrong with a kernel."""
    for what, names in (
        ("buffers", [buffer.name for buffer in kernel.buffers]),
        ("loops", [axis.symbol.name for axis in kernel.axes]),
    ):
        if len(set(names)) < len(names):
            _fail(kernel, f"two {what} have one name", ", ".join(names))
    known = {buffer.name: buffer for buffer in kernel.buffers}
    loops = frozenset(axis.symbol for axis in kernel.axes)
    for store in kernel.stores:
        _check_store(kernel, store, loops)
        roots = (*store.position, store.value, *(() if store.guard is None else (store.guard,)))
        for part in walk(roots):
            if isinstance(part, Load):
                _check_access(kernel, known, part.buffer, part.operands)
            elif isinstance(part, Variable):
                _fail(kernel, "variables are of loop nests", part.name)
        _check_access(kernel, known, store.buffer, store.position)


def _check_store(kernel: Kernel, store: Store, loops: frozenset[Symbol]) -> None:
    if store.buffer.name not in {buffer.name for buffer in kernel.outputs}:
        _fail(kernel, "only results are written", store.buffer.name)
    if store.value.dtype is not store.buffer.dtype:
        _fail(kernel, f"{store.buffer.name} holds {store.buffer.dtype}", str(store.value.dtype))
    if store.guard is not None and store.guard.dtype is not bool_:
        _fail(kernel, "a guard is a bool", str(store.guard.dtype))
    for root in (*store.position, store.value):
        loose = [each.name for each in root.symbols - loops if _is_loop(each)]
        if loose:
            _fail(kernel, f"no loop binds {', '.join(sorted(loose))}", expr_text(root))


def _check_access(
    kernel: Kernel, known: dict[str, Buffer], buffer: Buffer, position: tuple[Expr, ...]
) -> None:
    """An element of a buffer of the signature, perhaps in another shape, at whole numbers."""
    if buffer.name not in known:
        _fail(kernel, f"{buffer.name} is not in its signature", ", ".join(known))
    if buffer.dtype is not known[buffer.name].dtype:
        _fail(kernel, f"{buffer.name} holds {known[buffer.name].dtype}", str(buffer.dtype))
    if len(position) != len(buffer.shape):
        _fail(kernel, f"{buffer.name} has {len(buffer.shape)} axes", f"{len(position)} positions")
    for place in position:
        if not place.dtype.is_integer:
            _fail(kernel, "a position is an integer", f"{expr_text(place)}: {place.dtype}")


def _is_loop(symbol: Symbol) -> bool:
    """Whether a symbol is named as loop variables are."""
    return symbol.name.startswith(("_i", "_r", "_t"))


def _fail(kernel: Kernel, problem: str, found: str) -> NoReturn:
    excerpt = found if len(found) <= 120 else found[:120] + "…"
    raise GraphError(f"kernel {kernel.name} is malformed: {problem}", found=excerpt)

"""Loops in LLVM IR that do one thing as fast as a core can: move bytes, or multiply and add.

``read``, ``copy`` and ``triad`` (``a = b + c``) go through memory once, with whole vectors, and
store past the cache, since an ordinary store first reads the line that it overwrites.
``cached_triad`` stores as usual, for arrays that stay in a cache. ``multiply`` keeps all of its
chains of products and sums in registers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

from monograph.targets.cpu.machine import Library, compile_text, function_pointer, host

LANES, UNROLL = 8, 4
STEP = LANES * UNROLL
"""Numbers of f32 that the streams' loops take in one turn; an array's length is a multiple."""
PRODUCTS_IN_FLIGHT = 12
"""Products in flight at a time, enough to hide the latency of each."""

ARRAYS_MOVED = {"read": 1, "copy": 2, "triad": 3, "cached_triad": 3}
"""How many arrays each stream moves."""


class StreamKernels:
    """The compiled loops, each called with three addresses, a length and a number of times.

    ``a`` is written; ``b`` and ``c`` are read. They begin at lines of the cache. ``multiply``
    takes vectors in place of a length, and does them ``times`` over.
    """

    def __init__(self) -> None:
        machine = host()
        self.lanes = machine.vector_bytes // 4
        """Numbers that ``multiply`` has in a vector."""
        text = "\n".join([*map(_stream, ARRAYS_MOVED), _multiply(self.lanes), "!0 = !{i32 1}"])
        self._library = Library(compile_text(text, machine).object)
        self.kernels = {name: self._function(name) for name in (*ARRAYS_MOVED, "multiply")}

    def flops(self, length: int) -> int:
        """Products and sums of ``multiply`` for a length."""
        return 2 * PRODUCTS_IN_FLIGHT * self.lanes * length

    def _function(self, name: str) -> Callable[..., None]:
        arguments = (*(ctypes.c_void_p,) * 3, *(ctypes.c_int64,) * 2)
        found = function_pointer(self._library.address(name), None, *arguments)
        return cast(Callable[..., None], found)


def _stream(name: str) -> str:
    """A loop over whole vectors of a (written), b and c (read); ``read`` writes one vector."""
    vector = f"<{LANES} x float>"
    body: list[str] = []
    sums = []
    for step in range(UNROLL):
        body.append(f"  %i{step} = add i64 %i, {step * LANES}")
        body += _load("b", step, vector)
        if name == "read":
            sums.append(f"  %s{step} = phi {vector} [zeroinitializer, %pass], [%t{step}, %loop]")
            body.append(f"  %t{step} = fadd {vector} %s{step}, %b{step}")
            continue
        value = f"%b{step}"
        if name.endswith("triad"):
            body += _load("c", step, vector)
            body.append(f"  %t{step} = fadd {vector} %b{step}, %c{step}")
            value = f"%t{step}"
        past = "" if name.startswith("cached") else ", !nontemporal !0"
        body.append(f"  %pa{step} = getelementptr float, ptr %a, i64 %i{step}")
        body.append(f"  store {vector} {value}, ptr %pa{step}, align 32{past}")
    end = ["  fence seq_cst"]
    if name == "read":
        end = [f"  %u0 = fadd {vector} %t0, %t1", f"  %u1 = fadd {vector} %t2, %t3"]
        end += [f"  %u = fadd {vector} %u0, %u1", f"  store {vector} %u, ptr %a, align 4"]
    return _in_loops(name, STEP, sums, body, end)


def _multiply(lanes: int) -> str:
    """Chains of products and sums of what b and c begin with; their sum goes to a."""
    vector = f"<{lanes} x float>"
    fma = f"llvm.fma.v{lanes}f32"
    chains = range(PRODUCTS_IN_FLIGHT)
    sums = [f"  %s{k} = phi {vector} [zeroinitializer, %pass], [%t{k}, %loop]" for k in chains]
    steps = [
        f"  %t{k} = call {vector} @{fma}({vector} %b0, {vector} %c0, {vector} %s{k})"
        for k in chains
    ]
    total = [
        f"  %u{k} = fadd {vector} {f'%u{k - 1}' if k else 'zeroinitializer'}, %t{k}" for k in chains
    ]
    total.append(f"  store {vector} %u{PRODUCTS_IN_FLIGHT - 1}, ptr %a, align 4")
    first = ["  %i0 = add i64 0, 0", *_load("b", 0, vector), *_load("c", 0, vector)]
    declared = f"declare {vector} @{fma}({vector}, {vector}, {vector})\n"
    return declared + _in_loops("multiply", 1, sums, steps, total, first)


def _in_loops(
    name: str,
    step: int,
    sums: list[str],
    body: list[str],
    end: list[str],
    first: list[str] | None = None,
) -> str:
    """``times`` passes over a range, with a body in the inner loop."""
    return "\n".join(
        [
            f"define void @{name}(ptr %a, ptr %b, ptr %c, i64 %n, i64 %times) {{",
            "entry:",
            *(first or ()),
            "  br label %pass",
            "pass:",
            "  %done = phi i64 [0, %entry], [%passed, %after]",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %pass], [%next, %loop]",
            *sums,
            *body,
            f"  %next = add i64 %i, {step}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %after",
            "after:",
            *end,
            "  %passed = add i64 %done, 1",
            "  %again = icmp slt i64 %passed, %times",
            "  br i1 %again, label %pass, label %exit",
            "exit:",
            "  ret void",
            "}",
        ]
    )


def _load(array: str, step: int, vector: str) -> list[str]:
    return [
        f"  %p{array}{step} = getelementptr float, ptr %{array}, i64 %i{step}",
        f"  %{array}{step} = load {vector}, ptr %p{array}{step}, align 4",
    ]

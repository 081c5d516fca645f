"""Faults to plant: each breaks one place of the compiler, and says what a bisection must name.

``python -m tests.inspect.planted`` plants each in turn and prints the table of what was found.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.inspect.bisect import Bisection, bisect
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Op, Trait, find_op
from monograph.kernel import mathlib, winograd_transform
from monograph.passes import cse, fold_constants, fold_conv_bn, recognize, simplify
from monograph.program import arena
from monograph.rewrite.rule import Rule
from monograph.runtime import program_cache
from monograph.targets.cpu.assemble import parallel_loops
from monograph.targets.cpu.layouts import convert
from monograph.targets.cpu.llvm import emit
from monograph.targets.cpu.llvm.tails import Tail, TailKind
from monograph.targets.cpu.products import product

Patch = pytest.MonkeyPatch


def op_class(name: str) -> type[Op]:
    """The class of an op."""
    found = find_op(name)
    assert found is not None, name
    return found


@dataclass(frozen=True)
class Fault:
    """A fault, a model that meets it, and what must be named."""

    name: str
    plant: Callable[[Patch], None]
    model: Callable[[], Graph]
    kind: str
    step: str
    """What the step must be called: a pattern for all of it."""
    rewrite: str
    """What the rewrite must be called: a pattern for all of it."""
    cured_by: str = ""
    """What must be the one cure; empty if nothing that can be switched off is to blame."""
    gradient: bool = False


def _rule(where: Any, table: str, rule: Rule) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(where, table, (rule, *getattr(where, table)))


def _method(op: str, method: str, wrong: Callable[..., Any]) -> Callable[[Patch], None]:
    """Wrap a method of an op: ``wrong`` gets the right one first."""

    def plant(patch: Patch) -> None:
        cls = op_class(op)
        right = getattr(cls, method)
        patch.setattr(cls, method, lambda self, *a, **k: wrong(right, self, *a, **k))

    return plant


def _one(op: str) -> str:
    """A pattern for one node of an op, and no other."""
    return rf"%\w+ = {op}\([^;]*"


def _kernel(op: str) -> tuple[str, str]:
    """The step and the rewrite of a fault in the one kernel of an op."""
    return rf"kernel k\d+_{op}", rf"kernel k\d+_{op} computes {_one(op)} by [^;]*"


def _formula(name: str) -> Callable[[Patch], None]:
    right = mathlib.FORMULAS[name]
    return lambda patch: patch.setitem(mathlib.FORMULAS, name, lambda *x: right(*x) * 1.01)


def _traced(function: Callable[..., Any], *types: str) -> Callable[[], Graph]:
    return lambda: monograph.trace(function, *types)


def _layers(x: Value) -> Any:
    """Something before and behind, that a bisection has to leave out."""
    y = F.exp(F.minimum(x, 2.0))
    return F.relu(y + 0.25)


def _normalized_image(x: Value) -> Value:
    rng = np.random.default_rng(0)
    weight = x.graph.add_weight("w", rng.normal(size=(4, 3, 3, 3)).astype("f4"))
    parts = [
        x.graph.add_weight(name, rng.uniform(0.5, 2.0, 4).astype("f4"))
        for name in ("scale", "bias", "mean", "variance")
    ]
    return F.relu(F.batch_norm(F.conv(x, weight), *parts))


def _two_slices(x: Value) -> Value:
    return F.concat([_layers(x)[:, :3], _layers(x)[:, 5:8]], 1)


def _long_lives(x: Value) -> Any:
    a = F.softmax(x @ x, axis=-1)
    b = F.softmax(a @ x, axis=-1)
    c = F.softmax(b @ x, axis=-1)
    return F.sum(a, axis=0) + F.sum(b @ c, axis=0)


def _winograd(x: Value) -> Value:
    rng = np.random.default_rng(0)
    weight = x.graph.add_weight("w", rng.normal(size=(64, 64, 3, 3)).astype("f4"))
    return F.conv(x, weight, padding=((1, 1), (1, 1)))


def _weighted(x: Value) -> Value:
    rng = np.random.default_rng(int(_weighted.seed))  # type: ignore[attr-defined]
    return x * F.exp(x.graph.add_weight("w", rng.normal(size=8).astype("f4")))


_weighted.seed = 0  # type: ignore[attr-defined]


def _stale(patch: Patch) -> None:
    patch.setattr(program_cache, "contents_digest", lambda data: "same")
    _weighted.seed = 1  # type: ignore[attr-defined]
    program = monograph.compile(monograph.trace(_weighted, "f32[4, 8]"), cache=True)
    program(np.ones((4, 8), "f4"))
    _weighted.seed = 2  # type: ignore[attr-defined]


def _short_lives(patch: Patch) -> None:
    right = arena._lives

    def lives(requests: Any, alignment: int) -> Any:
        found = right(requests, alignment)
        for life in found.values():
            life.last = life.first
        return found

    patch.setattr(arena, "_lives", lives)


def _same_key(node: Node) -> Any:
    return type(node.op), tuple(map(id, node.operands))


def _subtract_commutes(patch: Patch) -> None:
    cls = op_class("subtract")
    patch.setattr(cls, "traits", cls.traits | Trait.COMMUTATIVE)


def _last_index_moved(right: Any, self: Any, b: Any, index: Any, result: int = 0) -> Any:
    return right(self, b, (*index[:-1], index[-1] * 0), result)


def _no_tails(patch: Patch) -> None:
    """Vector loops whose last elements nobody computes."""
    patch.setattr(emit, "tail_of", lambda *_, **__: Tail(TailKind.NONE))


def _no_barrier(patch: Patch) -> None:
    """Loops run side by side although one reads what the other one writes."""
    patch.setattr(parallel_loops, "_conflict", lambda first, second: False)


def _swapped_layout(patch: Patch) -> None:
    """What a kernel leaves with channels last is copied as if it were row-major."""
    right = convert.convert

    def swapped(launches: Any, group: Any, value: Any, source: int, target: int, *_: Any) -> Any:
        return right(launches, group, value, source, target, None, None)

    patch.setattr(convert, "convert", swapped)


def _early_epilogue(patch: Patch) -> None:
    """Products are finished by their epilogue after each block of k, as if it were the last."""
    patch.setattr(
        product._ProductBuilder,
        "_finish_tile",
        lambda self, tile, variables: self._store_tile(tile, variables),
    )


def _two_scans(x: Value) -> Value:
    """A recurrence over the results of another one, which takes longer than it."""

    def slow(state: Value, each: Value) -> Any:
        new = state * 0.5 + each
        for _ in range(3):
            new = F.tanh(new)
        return new, new

    def quick(state: Value, each: Value) -> Any:
        new = state * 0.5 + each
        return new, new

    start = F.zeros((x.shape[1],), x.dtype)
    return F.scan(quick, start, F.scan(slow, start, x)[1])[1]


def _images(x: Value) -> Value:
    rng = np.random.default_rng(0)
    weight = x.graph.add_weight("w", rng.normal(size=(32, 16, 3, 3)).astype("f4"))
    return F.conv(F.tanh(x), weight, stride=(2, 2))


def _deep_product(x: Value) -> Value:
    rng = np.random.default_rng(0)
    weight = x.graph.add_weight("w", rng.normal(size=(3000, 48)).astype("f4") / 50)
    return F.relu(x @ weight + 0.25)


MODEL = _traced(lambda x: _layers(x) * 1.0 - x, "f32[batch, 8]")
FAULTS = (
    Fault(
        "wrong rule",
        _rule(
            simplify,
            "EXACT",
            Rule("planted", pattern=lambda x: x * 1, replacement=lambda x: x + x, floats=""),
        ),
        MODEL,
        "pass",
        "simplify",
        r"rule planted: %multiply = multiply\(%relu, %c\w*\) became %add = add\(%relu, %relu\)",
    ),
    Fault(
        "rule that forgets NaN",
        _rule(
            simplify,
            "EXACT",
            Rule("planted", pattern=lambda x: x * 0, replacement=lambda match: 0.0, floats=""),
        ),
        _traced(lambda x: F.exp(x) + x * 0.0, "f32[40]"),
        "pass",
        "simplify",
        r"rule planted: %multiply = multiply\(%x, %c\w*\) became %full = full\([^;]*",
    ),
    Fault(
        "rule that is off by little",
        _rule(
            simplify,
            "EXACT",
            Rule("planted", pattern=lambda x: x / 3.0, replacement=lambda x: x * 0.3333, floats=""),
        ),
        _traced(lambda x: F.exp(F.minimum(x / 3.0, 2.0)), "f32[batch, 40]"),
        "pass",
        "simplify",
        r"rule planted: %divide = divide\(%x, %c\w*\) became %multiply = multiply\(%x, %c\w*\)",
    ),
    Fault(
        "wrong recognition",
        _rule(
            recognize,
            "RULES",
            Rule(
                "planted",
                pattern=lambda x: F.maximum(x, 0),
                replacement=lambda x: F.abs(x),
                floats="",
            ),
        ),
        _traced(lambda x: F.tanh(F.maximum(x, 0.0)), "f32[batch, 8]"),
        "pass",
        "recognize",
        r"rule planted: %maximum = maximum\(%x, %c\w*\) became %abs = abs\(%x\)",
    ),
    Fault(
        "wrong trait",
        _subtract_commutes,
        _traced(lambda x: 1.0 - F.exp(x), "f32[9]"),
        "pass",
        "canonicalize",
        r"- %subtract = subtract\(%c, %exp\) [^;]*; \+ %subtract = subtract\(%exp, %c\) [^;]*",
    ),
    Fault(
        "merging unequal nodes",
        lambda patch: patch.setattr(cse, "_key", _same_key),
        _traced(_two_slices, "f32[3, 9]"),
        "pass",
        "cse",
        r"- %\w+ = constant\([^;]*; - %\w+ = (\w+)\((%\w+), %\w+\)[^;]*; (- [^;]*; )?"
        r"\+ %\w+ = \1\(\2, [^;]*(; \+ [^;]*)?",
    ),
    Fault(
        "wrong constants",
        lambda patch: patch.setattr(
            fold_constants,
            "find_contents",
            lambda value, right=fold_constants.find_contents: right(value) + 1,
        ),
        _traced(lambda x: x * F.exp(F.cast(np.float32([1, 2, 3]), "f32")), "f32[5, 3]"),
        "pass",
        "fold_constants",
        r"- %exp = exp\(%c\) [^;]*; \+ %exp = constant\([^;]*",
    ),
    Fault(
        "batch norm without its scale",
        lambda patch: patch.setattr(
            fold_conv_bn, "_scale_channels", lambda layer, weight, factor: weight
        ),
        _traced(_normalized_image, "f32[1, 3, 8, 8]"),
        "pass",
        "fold_conv_bn",
        r"rule fold_batch_norm: %batch_norm = batch_norm\(%conv, [^;]* became "
        r"%conv_1 = conv\([^;]*",
    ),
    Fault(
        "wrong type rule",
        _method("transpose", "infer", lambda right, self, x: x),
        _traced(lambda x: F.exp(F.transpose(x, (1, 0))), "f32[3, 4]"),
        "as given",
        "transpose's own definition",
        r"%transpose = transpose\(%x\)[^;]*",
    ),
    Fault(
        "wrong decomposition",
        _method("layer_norm", "decompose", lambda right, self, *x: right(self, *x) * 1.01),
        _traced(lambda x: F.relu(F.layer_norm(F.exp(x))), "f32[6, 40]"),
        "pass",
        r"lower_composites\{.*\}",
        r"- %layer_norm = layer_norm\(%\w+\) [^-]*(;|…).*",
    ),
    Fault(
        "decomposition with an offset",
        _method("rms_norm", "decompose", lambda right, self, *x: right(self, *x) + 0.01),
        _traced(lambda x: F.exp(F.rms_norm(x + 1.0)), "f32[6, 40]"),
        "pass",
        r"lower_composites\{.*\}",
        r"- %rms_norm = rms_norm\(%\w+\) [^-]*(;|…).*",
    ),
    Fault(
        "wrong formula of exp",
        _formula("exp"),
        _traced(_layers, "f32[40]"),
        "program",
        *_kernel("exp"),
    ),
    Fault(
        "wrong formula of tanh",
        _formula("tanh"),
        _traced(lambda x: F.tanh(x) + x, "f32[40]"),
        "program",
        *_kernel("tanh"),
    ),
    Fault(
        "wrong index map of a transpose",
        _method("transpose", "lower", _last_index_moved),
        _traced(lambda x: F.exp(F.transpose(F.tanh(x), (1, 0))), "f32[5, 6]"),
        "program",
        *_kernel("transpose"),
    ),
    Fault(
        "wrong index map of a slice",
        _method("slice", "lower", _last_index_moved),
        _traced(lambda x: F.relu(F.exp(x)[2:7]) + 1.0, "f32[9]"),
        "program",
        *_kernel("slice"),
    ),
    Fault(
        "wrong index map of a concat",
        _method("concat", "lower", _last_index_moved),
        _traced(lambda x, y: F.exp(F.concat([x, y], 0)), "f32[4]", "f32[5]"),
        "program",
        *_kernel("concat"),
    ),
    Fault(
        "overlapping arena slots",
        _short_lives,
        _traced(_long_lives, "f32[70, 70]"),
        "program",
        r"kernel k\d+_sum\w*",
        rf"kernel k\d+_sum\w* computes {_one('sum')} by [^;]*",
        "arena_reuse",
    ),
    Fault(
        "wrong Winograd transform",
        lambda patch: patch.setattr(
            winograd_transform,
            "_multiply_add",
            lambda factor, a, b, right=winograd_transform._multiply_add: right(-factor, a, b),
        ),
        _traced(_winograd, "f32[1, 64, 28, 28]"),
        "program",
        r"one of the kernels (k\d+_conv\w*(, )?)+",
        r"(kernel k\d+_conv\w* computes %conv = conv\(%x, %w\)[^;]*(; )?)+",
        "winograd",
    ),
    Fault(
        "bad vector tail",
        _no_tails,
        _traced(lambda x: F.exp(F.minimum(x, 2.0)) + 1.0, "f32[3, 37]"),
        "program",
        *_kernel("add"),
        "vector_loops",
    ),
    Fault(
        "missing barrier",
        _no_barrier,
        _traced(_two_scans, "f32[400, 2048]"),
        "program",
        r"one of the kernels (k\d+_full, )?k\d+_multiply_add_tanh, k\d+_multiply_add",
        r".*; kernel k\d+_multiply_add computes %\w+ = multiply\([^;]*; %\w+ = add\([^;]*",
        "threads=1",
    ),
    Fault(
        "swapped layout",
        _swapped_layout,
        _traced(_images, "f32[1, 16, 29, 29]"),
        "program",
        r"(kernel|one of the kernels) k\d+_conv_convert(, k\d+_conv)?",
        r"(kernel k\d+_conv\w* computes %conv = conv\(%tanh, %w\)[^;]*(; )?)+",
    ),
    Fault(
        "bad epilogue",
        _early_epilogue,
        _traced(_deep_product, "f32[40, 3000]"),
        "program",
        r"kernel k\d+_dot_general\w*",
        r"kernel k\d+_dot_general\w* computes %matmul = dot_general\(%x, %w[^;]*(; %\w+ = [^;]*)*",
        "tiled_products",
    ),
    Fault(
        "stale cache",
        _stale,
        _traced(_weighted, "f32[4, 8]"),
        "cache",
        "the disk cache",
        "the program that the cache has for this graph is another's, or damaged",
        "cache=False",
    ),
    Fault(
        "wrong gradient of tanh",
        _method("tanh", "vjp", lambda right, self, node, grad: (grad * 0.5,)),
        _traced(lambda x: F.exp(F.tanh(F.sin(x))), "f32[7]"),
        "gradient",
        "the gradient of tanh",
        _one("tanh"),
        gradient=True,
    ),
    Fault(
        "wrong gradient of a product",
        _method(
            "matmul",
            "vjp",
            lambda right, self, node, grad: tuple(each * 2.0 for each in right(self, node, grad)),
        ),
        _traced(lambda x: F.sin(F.tanh(x) @ F.cos(x)), "f32[5, 5]"),
        "gradient",
        "the gradient of matmul",
        _one("matmul"),
        gradient=True,
    ),
    Fault(
        "wrong gradient of a sum",
        _method("sum", "vjp", lambda right, self, node, grad: (right(self, node, grad)[0] * 0.97,)),
        _traced(lambda x: F.sin(F.sum(F.exp(x), axis=0)), "f32[5, 6]"),
        "gradient",
        "the gradient of sum",
        _one("sum"),
        gradient=True,
    ),
    Fault(
        "gradient that forgets an operand",
        _method(
            "divide",
            "vjp",
            lambda right, self, node, grad: (
                right(self, node, grad)[0],
                right(self, node, grad)[1] * 0.0,
            ),
        ),
        _traced(lambda x: F.sin(x) / (F.exp(x) + 1.0), "f32[7]"),
        "gradient",
        "the gradient of divide",
        _one("divide"),
        gradient=True,
    ),
)


def find(fault: Fault, patch: Patch) -> Bisection:
    """Plant a fault and search for it."""
    fault.plant(patch)
    return bisect(fault.model(), gradient=fault.gradient, trials=120)


def names(fault: Fault, found: Bisection) -> bool:
    """Whether a bisection says what is at fault: the step, the rewrite or kernel, the cure."""
    return (
        found.kind == fault.kind
        and re.fullmatch(fault.step, found.step) is not None
        and re.fullmatch(fault.rewrite, found.rewrite, re.DOTALL) is not None
        and found.cured_by == ((fault.cured_by,) if fault.cured_by else ())
    )


def main() -> None:
    """Print the table, of the faults that are named or of all."""
    for fault in FAULTS:
        if sys.argv[1:] and fault.name not in sys.argv[1:]:
            continue
        with Patch.context() as patch:
            found = find(fault, patch)
        ok = "yes" if names(fault, found) else "NO"
        lines = len(found.repro.strip().splitlines())
        said = found.rewrite.replace("|", "/")
        said = said if len(said) <= 60 else said[:59] + "…"
        step = re.sub(r"\{.*\}", "", found.step)
        cures = ", ".join(found.cured_by)
        row = f"| {fault.name} | {step} | {said} | {cures} | {ok} | {lines} | {found.seconds:.0f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()

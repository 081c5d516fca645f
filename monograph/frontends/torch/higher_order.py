"""Control flow and wrappers: torch's higher-order ops, whose arguments are graphs.

``torch.cond``, ``while_loop``, ``scan`` and ``map`` become our ``if``, ``while`` and ``scan``.
Wrappers that only say how a part of the program was run (gradients on or off, checkpointing) are
read as if they were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.frame import NeedsFunctionalization
from monograph.frontends.torch.scalars import as_value
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f32

if TYPE_CHECKING:
    from monograph.frontends.torch.importer import Importer


def convert(importer: Importer, node: Any) -> Any:
    """What a higher-order op becomes."""
    rule = _RULES.get(node.target.name())
    if rule is None:
        raise UnsupportedError(f"the higher-order op {node.target} is not supported")
    return rule(importer, node)


def is_supported(target: Any) -> bool:
    """Whether a higher-order op can be read."""
    return target.name() in _RULES


def subgraphs(node: Any) -> list[Any]:
    """The graphs among a higher-order op's arguments."""
    modules = []
    for argument in node.all_input_nodes:
        if argument.op == "get_attr":
            found = argument.graph.owning_module
            for part in str(argument.target).split("."):
                found = getattr(found, part, None)
            if hasattr(found, "graph"):
                modules.append(found)
    return modules


def _predicate(value: Any) -> Value:
    return F.reshape(cast_to(as_value(value), bool_), ())


def _cond(importer: Importer, node: Any) -> Any:
    predicate, then, otherwise, *rest = (importer.argument(argument) for argument in node.args)
    operands = rest[0] if rest else []
    if isinstance(predicate, bool):
        return tuple(_run(importer, then if predicate else otherwise, operands))

    def branch(module: Any) -> Callable[[], Any]:
        return lambda: tuple(map(as_value, _run(importer, module, operands)))

    return F.cond(_predicate(predicate), branch(then), branch(otherwise))


def _while(importer: Importer, node: Any) -> Any:
    condition, body, carried, *rest = (importer.argument(argument) for argument in node.args)
    extra = rest[0] if rest else []
    if not all(isinstance(value, Value) for value in carried):
        raise UnsupportedError("a while_loop that carries numbers; carry 0-d tensors instead")

    def goes_on(carry: Any) -> Value:
        return _predicate(_run(importer, condition, [*carry, *extra])[0])

    def step(carry: Any) -> Any:
        return tuple(_run(importer, body, [*carry, *extra]))

    return F.while_loop(goes_on, step, tuple(carried))


def _scan(importer: Importer, node: Any) -> Any:
    body, initial, xs, *rest = (importer.argument(argument) for argument in node.args)
    extra = rest[0] if rest else []

    def step(carry: Any, slices: Any) -> Any:
        results = _run(importer, body, [*carry, *slices, *extra])
        return tuple(results[: len(initial)]), tuple(results[len(initial) :])

    carry, stacked = F.scan(step, tuple(initial), tuple(xs))
    return (*carry, *stacked)


def _map(importer: Importer, node: Any) -> Any:
    body, xs, *rest = (importer.argument(argument) for argument in node.args)
    extra = rest[0] if rest else []
    _, stacked = F.scan(
        lambda _, slices: ((), tuple(_run(importer, body, [*slices, *extra]))), (), tuple(xs)
    )
    return tuple(stacked)


def _grad_mode(importer: Importer, node: Any) -> Any:
    _, module, *operands = node.args
    return _inline(importer, module, operands)


def _autocast(importer: Importer, node: Any) -> Any:
    """A region of lower precision: torch inserts the casts when it functionalizes."""
    enabled = node.args[2]
    if enabled:
        raise NeedsFunctionalization("an autocast region")
    return _inline(importer, node.args[4], node.args[5:])


def _wrapper(importer: Importer, node: Any) -> Any:
    module, *operands = node.args
    return _inline(importer, module, operands)


def _invoke(importer: Importer, node: Any) -> Any:
    module, _, *operands = node.args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    return _inline(importer, module, operands)


def _with_effects(importer: Importer, node: Any) -> Any:
    """An op whose effects have an order, as tokens tell that are handed on: our graph has one."""
    _, target, *arguments = node.args
    recorded = list(node.meta.get("val") or ())[1:]
    with node.graph.inserting_before(node):
        call = node.graph.call_function(target, tuple(arguments), dict(node.kwargs))
    call.meta = {**node.meta, "val": recorded[0] if len(recorded) == 1 else tuple(recorded)}
    result = importer.convert(call)
    node.graph.erase_node(call)
    token = F.zeros((0,), f32)
    return (token, *(result if isinstance(result, tuple) else (result,)))


def _inline(importer: Importer, module_node: Any, operands: Sequence[Any]) -> Any:
    """Read a subgraph in place; what it writes to its arguments, it writes to ours."""
    module = importer.argument(module_node)
    results, frame = importer.run(module, [importer.argument(operand) for operand in operands])
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for placeholder, operand in zip(placeholders, operands, strict=False):
        if placeholder in frame.written:
            importer.frame.write(operand, frame.read(placeholder))
    return tuple(results) if isinstance(results, list) else results


def _run(importer: Importer, module: Any, operands: Sequence[Any]) -> list[Any]:
    results, frame = importer.run(module, operands)
    if frame.written:
        raise NeedsFunctionalization("a branch or loop that writes to what it is given")
    return list(results) if isinstance(results, list | tuple) else [results]


_RULES: dict[str, Callable[[Importer, Any], Any]] = {
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "map_impl": _map,
    "wrap_with_set_grad_enabled": _grad_mode,
    "wrap_with_autocast": _autocast,
    "wrap": _wrapper,
    "wrap_activation_checkpoint": _wrapper,
    "tag_activation_checkpoint": _wrapper,
    "invoke_subgraph": _invoke,
    "with_effects": _with_effects,
}

"""What each op becomes: ONNX nodes, or other ops of ours.

    @exports(Softmax)
    def softmax(node: ExportContext[Softmax]) -> Exported:
        return node.emit("Softmax", *node.inputs, axis=node.op.axis)

    @expands(Trunc)
    def trunc(op: Trunc, x: Value) -> Value:
        return where(x < 0.0, ceil(x), floor(x))

A converter may decline by returning None. The op is then expanded, or else decomposed, and becomes
a local function of the model; an op with none of these is unsupported. A converter that needs many
nodes asks to be a function too: ``@exports(Max, function=True)``, or gives a test of the node.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from monograph.dataclass import dataclass
from monograph.exporters.onnx.scope import Term
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op

if TYPE_CHECKING:
    from monograph.exporters.onnx.context import ExportContext

Exported: TypeAlias = Term | Sequence[Term] | None
"""A converter's result: the term, or the terms, of the node's results; None to decline."""

Convert: TypeAlias = "Callable[[ExportContext[Any]], Exported]"
Expand: TypeAlias = Callable[..., Value | tuple[Value, ...]]

_Convert = TypeVar("_Convert", bound=Callable[..., Exported])
_Expand = TypeVar("_Expand", bound=Callable[..., Any])


@dataclass(frozen=True)
class Converter:
    """What writes an op's nodes, and whether they make a local function of it."""

    convert: Convert
    function: bool | Callable[[Node], bool]

    def makes_function(self, node: Node) -> bool:
        """Whether the node becomes a call of a local function."""
        return self.function if isinstance(self.function, bool) else self.function(node)


_CONVERTERS: dict[type[Op], Converter] = {}
_CONVERTERS_BY_NAME: dict[str, Converter] = {}
_EXPANSIONS: dict[type[Op], Expand] = {}
_loaded = False


def exports(
    *ops: type[Op], function: bool | Callable[[Node], bool] = False
) -> Callable[[_Convert], _Convert]:
    """Register a function as the converter of these ops."""

    def register(convert: _Convert) -> _Convert:
        for op in ops:
            if op in _CONVERTERS:
                raise ValueError(f"two converters for {op.name}")
            _CONVERTERS[op] = Converter(convert, function)
        return convert

    return register


def exports_named(name: str) -> Callable[[_Convert], _Convert]:
    """Register the converter of an op that must not be imported here, by its name."""

    def register(convert: _Convert) -> _Convert:
        _CONVERTERS_BY_NAME[name] = Converter(convert, function=False)
        return convert

    return register


def expands(*ops: type[Op]) -> Callable[[_Expand], _Expand]:
    """Register what ops are in terms of others: ``expand(op, *operands)`` builds graph."""

    def register(expand: _Expand) -> _Expand:
        for op in ops:
            if op in _EXPANSIONS:
                raise ValueError(f"two expansions of {op.name}")
            _EXPANSIONS[op] = expand
        return expand

    return register


def converter_of(op: Op) -> Converter | None:
    """The converter of an op, if it has one."""
    _load()
    found = _CONVERTERS.get(type(op)) or _CONVERTERS_BY_NAME.get(op.name)
    return found or (_SAME if op.onnx_name else None)


def _same(node: Any) -> Exported:
    """An op that ONNX has as it is, in the dtypes that ONNX Runtime has it in.

    One of another domain (``my.domain::Wave``) is for the runtime that has that domain to compute.
    """
    domain, _, name = node.op.onnx_name.rpartition("::")
    if domain:
        made: Sequence[Term] = node.write(name, node.inputs, node.result_dtypes(), domain=domain)
        return made
    return node.emit(name, *node.inputs) if node.runs(name, node.dtype) else None


_SAME = Converter(_same, function=False)


def expansion_of(op: Op) -> Callable[..., Any] | None:
    """What builds an op from others: its expansion here, or else its own decomposition."""
    _load()
    expand = _EXPANSIONS.get(type(op))
    if expand is not None:
        return lambda *operands: expand(op, *operands)
    return op.decompose if op.is_composite() else None


def is_exported(op: type[Op]) -> bool:
    """Whether anything says what an op is in ONNX; some operands may be refused all the same."""
    from monograph.exporters.onnx.complex_rules import has_rule

    _load()
    written = (
        bool(op.onnx_name)
        or op in _CONVERTERS
        or op in _EXPANSIONS
        or op.name in _CONVERTERS_BY_NAME
    )
    return written or op.is_composite() or has_rule(op)


def _load() -> None:
    """Import every file of ``converters/``, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    from monograph.exporters.onnx import converters as folder

    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")

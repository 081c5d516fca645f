"""A recipe that writes out the pattern of any rewrite rule, or nearly so.

Most random graphs hold nothing for a given rule to find. Here each rule finds its own pattern on
random operands, now and then with another number or another operand in one place, which it must not
take for the pattern.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ir.types import DType, bool_
from monograph.rewrite import rules as rule_files
from monograph.rewrite.pattern import AnyConstant, Capture, Literal, OpPattern, Pattern, Variable
from monograph.rewrite.rule import FunctionRule, Rule
from tests.properties.builder import FLOATS, INTEGERS, Builder, Unfit, broadcasts
from tests.properties.recipes import COMPARISON, recipe


@cache
def pattern_rules() -> tuple[Rule, ...]:
    """Every rule that has a pattern, from all files of ``monograph.rewrite.rules``."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rule_files.__path__):
        file = importlib.import_module(f"{rule_files.__name__}.{module.name}")
        for rule in file.RULES:
            if not isinstance(rule, FunctionRule):
                found[rule.name] = rule
    return tuple(found.values())


@recipe(20)
def rule_pattern(b: Builder) -> Any:
    rule = b.choose(pattern_rules())
    kinds = rule._kinds  # nothing else needs to know them
    dtypes = [dtype for dtype in (*FLOATS, *INTEGERS, bool_) if dtype.kind in kinds]
    present = {value.dtype for value in b.values}
    operand = b.choose([dtype for dtype in dtypes if dtype in present] or dtypes)
    return Writer(b, operand).write(rule._matcher._root, operand)


class Writer:
    """Writes one pattern into a graph; a variable is the same value wherever it occurs."""

    def __init__(self, builder: Builder, operand: DType) -> None:
        self.builder = builder
        self.operand = operand
        self.bound: dict[str, Value] = {}

    def write(self, pattern: Pattern, dtype: DType) -> Value:
        """The value of ``dtype`` that a pattern describes."""
        if isinstance(pattern, OpPattern):
            return self._apply(pattern, dtype)
        if isinstance(pattern, Literal):
            return self._literal(pattern.number, dtype)
        assert isinstance(pattern, Variable | AnyConstant)
        bound = self.bound.get(pattern.name)
        if bound is None or bound.dtype is not dtype or self.builder.chance(0.04):
            bound = self._new(pattern, dtype)
            self.bound[pattern.name] = bound
        return bound

    def _apply(self, pattern: OpPattern, dtype: DType) -> Value:
        name = pattern.op.name
        dtypes = [dtype] * len(pattern.operands)
        if name == "where":
            dtypes[0] = bool_
        elif name.startswith("logical"):
            dtypes = [bool_] * len(dtypes)
        elif name in COMPARISON or name.startswith("is_"):
            dtypes = [self.operand] * len(dtypes)
        operands = [self.write(*pair) for pair in zip(pattern.operands, dtypes, strict=True)]
        if len(operands) == 2 and self.builder.chance(0.1):
            operands.reverse()
        result: Value = self.builder.graph.add(self._attributed(pattern.op, operands[0]), *operands)
        return result

    def _attributed(self, op: Op, operand: Value) -> Op:
        """The op with something that fits in place of the attributes that the pattern leaves."""
        b = self.builder
        values: dict[str, Any] = {}
        for name, attribute in op.attributes().items():
            if not isinstance(attribute, Capture):
                continue
            if name == "permutation":
                values[name] = tuple(b.random.sample(range(operand.rank), operand.rank))
            elif name == "axes":
                values[name] = b.axes(operand)
            elif name == "axis":
                values[name] = b.axis(operand)
            elif name == "keepdims":
                values[name] = b.chance(0.6)
            else:
                raise Unfit
        return replace(op, **values) if values else op  # type: ignore[type-var]  # a dataclass

    def _literal(self, number: complex, dtype: DType) -> Value:
        b = self.builder
        element = b.scalar(dtype) if b.chance(0.08) else number
        with np.errstate(all="ignore"):
            return b.graph.add_constant(np.asarray(element).astype(dtype.numpy))

    def _new(self, pattern: Variable | AnyConstant, dtype: DType) -> Value:
        b = self.builder
        others = [value.shape for value in self.bound.values()]
        fitting = [
            value
            for value in b.values
            if value.dtype is dtype and all(broadcasts(value.shape, shape) for shape in others)
        ]
        if isinstance(pattern, AnyConstant) or not fitting:
            anchor = next(iter(self.bound.values()), None)
            return b.constant(dtype, () if anchor is None else b.shape_for(anchor))
        return b.choose(fitting)

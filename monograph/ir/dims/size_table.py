"""Evaluates many expressions at once: instructions in which each distinct part is computed once.

A program whose sizes change from call to call needs the numbers of a hundred expressions, which are
made of the same few parts. They are compiled once: registers hold the sizes of the symbols and the
constants, and each instruction appends one more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from monograph.ir.dims.binding import evaluate_dim
from monograph.ir.dims.operations import FloorDiv, Max, Min, Mod, Opaque, Operation
from monograph.ir.dims.polynomial import Dim, Symbol, SymbolicDim

Registers: TypeAlias = list[int]
Instruction: TypeAlias = tuple[Callable[[Registers, Any], int], Any]
"""What computes a register from those before it, and what it is given to know which."""


class SizeTable:
    """The numbers of some dimensions, in order, for sizes of some symbols, in order."""

    def __init__(self, dims: Sequence[Dim], symbols: Sequence[Symbol]) -> None:
        self.dims = tuple(dims)
        self.symbols = tuple(symbols)
        self._instructions: list[Instruction] = []
        self._registers: dict[Dim, int] = {symbol: k for k, symbol in enumerate(symbols)}
        self._results = [self._register(dim) for dim in dims]

    def values(self, sizes: Sequence[int]) -> list[int]:
        """The number of each dimension; where one divides by zero, the error names it."""
        registers = list(sizes)
        try:
            for compute, operands in self._instructions:
                registers.append(compute(registers, operands))
        except ZeroDivisionError:
            bindings = dict(zip(self.symbols, sizes, strict=True))
            for dim in self.dims:
                evaluate_dim(dim, bindings)
            raise
        return [registers[k] for k in self._results]

    def _register(self, dim: Dim) -> int:
        """The register that holds a dimension, by an instruction of its own if it is new."""
        if dim in self._registers:
            return self._registers[dim]
        if isinstance(dim, SymbolicDim):
            for atom in dim.definitions():  # in their order, so that none recurses into another
                self._register(atom)
        instruction = self._instruction(dim)
        self._registers[dim] = len(self.symbols) + len(self._instructions)
        self._instructions.append(instruction)
        return self._registers[dim]

    def _instruction(self, dim: Dim) -> Instruction:
        if isinstance(dim, int):
            return _constant, dim
        if isinstance(dim, Operation):
            operands = tuple(self._register(each) for each in dim.arguments)
            return _OPERATIONS[type(dim)], operands
        if isinstance(dim, Symbol):
            evaluate_dim(dim, dict.fromkeys(self.symbols, 0))  # the error that names it
        terms = [
            (coefficient, tuple(self._register(atom) for atom in atoms))
            for atoms, coefficient in dim.terms()
        ]
        return _sum, tuple(terms)


def _constant(registers: Registers, value: int) -> int:
    return value


def _sum(registers: Registers, terms: tuple[tuple[int, tuple[int, ...]], ...]) -> int:
    total = 0
    for product, factors in terms:
        for k in factors:
            product *= registers[k]
        total += product
    return total


def _quotient(registers: Registers, operands: tuple[int, int]) -> int:
    return registers[operands[0]] // registers[operands[1]]


def _remainder(registers: Registers, operands: tuple[int, int]) -> int:
    return registers[operands[0]] % registers[operands[1]]


def _maximum(registers: Registers, operands: tuple[int, ...]) -> int:
    return max([registers[k] for k in operands])


def _minimum(registers: Registers, operands: tuple[int, ...]) -> int:
    return min([registers[k] for k in operands])


def _same(registers: Registers, operands: tuple[int]) -> int:
    return registers[operands[0]]


_OPERATIONS: dict[type[Operation], Callable[[Registers, Any], int]] = {
    FloorDiv: _quotient,
    Mod: _remainder,
    Max: _maximum,
    Min: _minimum,
    Opaque: _same,
}

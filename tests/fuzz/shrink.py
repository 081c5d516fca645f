"""Make a finding small: change the case in one way after another, and keep what still fails.

Candidates are tried from the boldest to the most timid: fewer outputs, a value cut off from what
computes it, a simpler way to run, smaller sizes, plainer inputs. ``fails`` says whether a case
still shows the finding; an invalid one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from tests.fuzz.check import Case
from tests.fuzz.programs import Program, Statement
from tests.fuzz.scope import name_of
from tests.fuzz.values import FLOATS, Source

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, attempts: int = 150) -> Case:
    """The smallest case that was found to fail as this one does."""
    tried = {_key(case)}
    progress = True
    while progress:
        progress = False
        for candidate in candidates(case):
            if _key(candidate) in tried:
                continue
            if attempts == 0:
                return case
            attempts -= 1
            tried.add(_key(candidate))
            if fails(candidate):
                case, progress = candidate, True
                break
    return case


def _key(case: Case) -> str:
    return repr(case.to_json())


def candidates(case: Case) -> Iterator[Case]:
    """Cases that are a step simpler, the boldest steps first."""
    program = case.program
    for smaller in (*_fewer_outputs(program), *_cut(program), *_bypassed(program)):
        yield replace(case, program=smaller.live().without_unused_inputs())
    yield from _simpler_modes(case)
    for smaller in (*_smaller_sizes(program), *_plainer_sources(program), *_other_dtypes(program)):
        yield _with_sizes_of(case, smaller)


def _fewer_outputs(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield replace(program, outputs=(name,))
    for statement in reversed(program.statements):
        if program.outputs != (statement.result,):
            yield replace(program, outputs=(statement.result,))


def _cut(program: Program) -> Iterator[Program]:
    """A statement's result becomes an input: what computes it is not needed any more."""
    values = _values(program)
    for number, statement in reversed(list(enumerate(program.statements))):
        value = values.get(statement.result)
        if value is None or statement.result in program.outputs:
            continue
        contents = "normal" if value.is_floating_point() or value.is_complex() else "index"
        source = Source(
            statement.result, tuple(value.shape), name_of(value.dtype), contents=contents, bound=2
        )
        rest = program.statements[:number] + program.statements[number + 1 :]
        yield Program((*program.sources, source), rest, program.outputs)


def _bypassed(program: Program) -> Iterator[Program]:
    """A statement is left out: those who read it read one of its operands."""
    for number, statement in enumerate(program.statements):
        for operand in dict.fromkeys(statement.operands):
            rest = program.statements[:number] + program.statements[number + 1 :]
            names = {statement.result: operand}
            outputs = tuple(dict.fromkeys(names.get(name, name) for name in program.outputs))
            yield Program(program.sources, tuple(_renamed(each, names) for each in rest), outputs)


def _renamed(statement: Statement, names: dict[str, str]) -> Statement:
    operands = tuple(names.get(name, name) for name in statement.operands)
    return replace(statement, operands=operands)


def _simpler_modes(case: Case) -> Iterator[Case]:
    mode = case.mode
    if mode.gradients:
        yield replace(case, mode=replace(mode, gradients=False))
    if mode.symbolic:
        yield replace(case, mode=replace(mode, symbolic=()))
        for size in mode.symbolic if len(mode.symbolic) > 1 else ():
            yield replace(case, mode=replace(mode, symbolic=(size,)))
    if mode.route != "compile" and not mode.gradients:
        yield replace(case, mode=replace(mode, route="compile"))
    for number in range(len(case.settings)):
        yield replace(case, settings=case.settings[:number] + case.settings[number + 1 :])
    if mode.threads > 1:
        yield replace(case, mode=replace(mode, threads=1))
    if mode.level != "O2":
        yield replace(case, mode=replace(mode, level="O2"))
    for source in case.program.parameters:
        yield replace(case, program=_with_source(case.program, replace(source, is_parameter=False)))


def _smaller_sizes(program: Program) -> Iterator[Program]:
    """One size, wherever inputs and weights have it, becomes a smaller one."""
    sizes = {size for each in program.sources for size in each.shape}
    for size in sorted(sizes, reverse=True):
        for smaller in (1, 2, 3, size // 2, size - 1):
            if 0 < smaller < size:
                yield replace(
                    program,
                    sources=tuple(
                        replace(each, shape=tuple(smaller if n == size else n for n in each.shape))
                        for each in program.sources
                    ),
                )


def _plainer_sources(program: Program) -> Iterator[Program]:
    for source in program.sources:
        if source.layout != "contiguous":
            yield _with_source(program, replace(source, layout="contiguous"))
        if source.contents not in ("normal", "index"):
            yield _with_source(program, replace(source, contents="normal"))


def _other_dtypes(program: Program) -> Iterator[Program]:
    """Every float becomes float32."""
    if any(each.dtype in FLOATS and each.dtype != "float32" for each in program.sources):
        yield replace(
            program,
            sources=tuple(
                replace(each, dtype="float32") if each.dtype in FLOATS else each
                for each in program.sources
            ),
        )


def _with_source(program: Program, source: Source) -> Program:
    sources = tuple(source if each.name == source.name else each for each in program.sources)
    return replace(program, sources=sources)


def _with_sizes_of(case: Case, program: Program) -> Case:
    """The case with another program: sizes that are gone are no longer symbolic, new ones are."""
    fixed = {size for each in program.parameters for size in each.shape}
    before = {size for each in case.program.inputs for size in each.shape}
    after = {size for each in program.inputs for size in each.shape}
    kept = set(case.mode.symbolic) & after
    if set(case.mode.symbolic) - after:
        kept |= {size for size in after - before if size > 1}
    symbolic = tuple(sorted(kept - fixed))
    return replace(case, program=program, mode=replace(case.mode, symbolic=symbolic))


def _values(program: Program) -> dict[str, Tensor]:
    """Every value of the program, as torch computes it; those before an error, if there is one."""
    values: dict[str, Tensor] = {}

    def watch(name: str, value: Tensor) -> Tensor:
        values[name] = value
        return value

    with torch.no_grad():
        program.build(program.weights(), watch=watch)(*program.arguments())
    return values

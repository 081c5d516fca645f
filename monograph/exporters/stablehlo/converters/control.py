"""Control flow: ``if`` and ``while`` as they are, ``scan`` as a loop over slices."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term
from monograph.exporters.stablehlo.sizes import is_known, write_integers
from monograph.ir.graph import Node
from monograph.ir.types import TensorType, i64
from monograph.ops.control import If, Scan, While


@TABLE.writes(If)
def _if(emitter: Emitter, node: Node, op: If) -> list[Term]:
    predicate, *operands = emitter.operands(node)
    then, otherwise = node.regions
    regions = (
        emitter.block([], lambda _: emitter.inline(then, operands)),
        emitter.block([], lambda _: emitter.inline(otherwise, operands)),
    )
    results = [value.tensor for value in node.results]
    return emitter.op_many("if", [predicate], results, "", *regions)


def _refuse_limit(node: Node) -> str | None:
    assert isinstance(node.op, While)
    return None if node.op.limit is None else "StableHLO's loops raise no errors at a limit"


@TABLE.writes(While, unless=_refuse_limit)
def _while(emitter: Emitter, node: Node, op: While) -> list[Term]:
    carry = emitter.operands(node)
    types = [value.tensor for value in node.results]
    condition, body = node.regions
    return emitter.op_many(
        "while",
        carry,
        types,
        "",
        emitter.block(types, lambda given: emitter.inline(condition, given)),
        emitter.block(types, lambda given: emitter.inline(body, given)),
    )


@TABLE.writes(Scan)
def _scan(emitter: Emitter, node: Node, op: Scan) -> list[Term]:
    """The step's number, the carries and the stacks are carried; the rest is seen from inside."""
    carries, sequences, constants = op.split(emitter.operands(node))
    (body,) = node.regions
    stacks = [emitter.filled(0, value.tensor) for value in node.results[op.carries :]]
    length = sequences[0].type.shape[0] if op.length is None else op.length
    if length == 0:
        return [*carries, *stacks]
    state = [emitter.number(0, i64), *carries, *stacks]
    types = [term.type for term in state]
    one, count = emitter.number(1, i64), emitter.sizes.size(length)
    last = emitter.sizes.size(length - 1)

    def goes_on(given: list[Term]) -> list[Term]:
        return [emitter.compare("LT", given[0], count)]

    def step(given: list[Term]) -> list[Term]:
        place = emitter.binary("subtract", last, given[0]) if op.reverse else given[0]
        slices = [_slice(emitter, each, place) for each in sequences]
        carried = given[1 : 1 + op.carries]
        results = emitter.inline(body, [*carried, *slices, *constants])
        written = [
            _write(emitter, stack, value, place)
            for stack, value in zip(given[1 + op.carries :], results[op.carries :], strict=True)
        ]
        return [emitter.binary("add", given[0], one), *results[: op.carries], *written]

    regions = emitter.block(types, goes_on), emitter.block(types, step)
    return emitter.op_many("while", state, types, "", *regions)[1:]


def _starts(emitter: Emitter, place: Term, rank: int) -> Sequence[Term]:
    zero = emitter.number(0, i64)
    return [place, *[zero] * (rank - 1)]


def _slice(emitter: Emitter, x: Term, place: Term) -> Term:
    shape = x.type.shape
    starts = _starts(emitter, place, len(shape))
    if not is_known(shape[1:]):
        return emitter.reshape(_slice_of_free_sizes(emitter, x, starts), shape[1:])
    attribute = f"slice_sizes = {write_integers([1, *shape[1:]])}"
    made = emitter.op("dynamic_slice", [x, *starts], x.type.with_shape((1, *shape[1:])), attribute)
    return emitter.reshape(made, shape[1:])


def _slice_of_free_sizes(emitter: Emitter, x: Term, starts: Sequence[Term]) -> Term:
    """The bounds are operands, and the limits are the starts plus the sizes."""
    sizes = (1, *x.type.shape[1:])
    vector = TensorType(i64, (len(sizes),))
    parts = [emitter.reshape(each, (1,)) for each in starts]
    first = emitter.op("concatenate", parts, vector, "dimension = 0 : i64")
    end = emitter.binary("add", first, emitter.sizes.vector(sizes))
    steps = emitter.sizes.vector([1] * len(sizes))
    return emitter.op("real_dynamic_slice", [x, first, end, steps], x.type.with_shape(sizes))


def _write(emitter: Emitter, stack: Term, value: Term, place: Term) -> Term:
    row = emitter.reshape(value, (1, *value.type.shape))
    starts = _starts(emitter, place, stack.type.rank)
    return emitter.op("dynamic_update_slice", [stack, row, *starts], stack.type)

"""Control flow: ``if``, ``while`` and ``scan``, whose bodies are regions.

The functions take Python callables, run each once to trace its region, and lift what it captures
from the graph around it to operands of the node (see ``ir.region``). Operands, carries and results
may be nested tuples, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from monograph.errors import DifferentiationError, EvaluationError
from monograph.ir.build import Operand, as_operands, graph_of
from monograph.ir.dims import Dim, SymbolicDim, dim_max, provably_less
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Family, Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.region import Pullback, RegionOp, RegionTracer, Sizes, Steps
from monograph.ir.tree import flatten, unflatten
from monograph.ir.types import Array, TensorType, ValueType, bool_
from monograph.ops import data, elementwise
from monograph.ops import shape as shape_ops
from monograph.ops.region_rules import (
    check_carries,
    check_inputs,
    check_structure,
    check_type,
    is_float,
    meet,
    sequence_type,
    slice_type,
    stack_type,
    trace_region,
    without_layout,
)
from monograph.ops.rules import require, same_dim


@op("if", family=Family.CONTROL, traits=Trait.SEQUENCES, regions=("then", "else"))
class If(RegionOp):
    """One of two regions on the operands, as the predicate says; the other does not run."""

    def infer(
        self, regions: Sequence[Graph], predicate: ValueType, *operands: ValueType
    ) -> tuple[ValueType, ...]:
        require(
            predicate == TensorType(bool_, ()),
            "if: the predicate must be one bool",
            expected="bool[]",
            found=predicate,
        )
        then, otherwise = regions
        for name, region in (("then", then), ("else", otherwise)):
            check_inputs(f"if: {name}", region, operands)
        require(
            len(then.outputs) == len(otherwise.outputs),
            "if: the branches have different numbers of results",
            expected=f"{len(then.outputs)}, as in then",
            found=f"{len(otherwise.outputs)} in else",
        )
        for index, (a, b) in enumerate(zip(then.outputs, otherwise.outputs, strict=True)):
            check_type(f"if: result {index} differs in its type", expected=a.type, found=b.type)
        return tuple(
            meet(a.type, b.type) for a, b in zip(then.outputs, otherwise.outputs, strict=True)
        )

    def steps(
        self, regions: Sequence[Graph], sizes: Sizes, predicate: Array, *operands: Any
    ) -> Steps:
        then, otherwise = regions
        outputs = yield (then if bool(predicate) else otherwise), list(operands)
        return tuple(outputs)

    def vjp(self, node: Node, *grads: Value, pullback: Pullback) -> Gradients:
        predicate, *operands = node.operands
        floats = [position for position, value in enumerate(operands) if is_float(value)]
        gradients: list[Value | None] = [None] * len(node.operands)
        if not floats:
            return tuple(gradients)
        arriving = [g for g, result in zip(grads, node.results, strict=True) if is_float(result)]
        regions = [pullback(region, floats) for region in node.regions]
        made = node.graph.create(self, (predicate, *operands, *arriving), regions=regions)
        for position, gradient in zip(floats, made.results, strict=True):
            gradients[1 + position] = gradient
        return tuple(gradients)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
        scale = np.float32(1.5)

        def double_or_scale(predicate: Value, x: Value, scale: Value) -> Any:
            return cond(predicate, lambda x: x * 2.0, lambda x: x * x * scale, x)

        def two_results(x: Value) -> Any:
            total = shape_ops.reshape(x, (6,))
            return cond(True, lambda: (total, x * 3.0), lambda: (total * 2.0, x))

        def nested(a: Value, b: Value, x: Value) -> Any:
            return cond(a, lambda: cond(b, lambda: x * 2.0, lambda: x * x), lambda: x + 1.0)

        true, false = np.array(True), np.array(False)
        yield Sample(double_or_scale, (true, x, np.asarray(scale)), "then")
        yield Sample(double_or_scale, (false, x, np.asarray(scale)), "else")
        yield Sample(two_results, (x,), "captures only")
        yield Sample(nested, (true, false, x), "nested")
        empty = np.zeros((0, 3), np.float32)
        yield Sample(double_or_scale, (true, empty, np.asarray(scale)), "empty", False)


@function
def cond(
    predicate: Operand,
    then_function: Callable[..., Any],
    else_function: Callable[..., Any],
    *operands: Any,
) -> Any:
    """``then_function(*operands)`` if the predicate is true, else ``else_function(*operands)``.

    Both must return the same structure of the same types; only the chosen one runs.

        y = cond(x.shape[0] > 4, lambda x: x * 2, lambda x: x, x)
    """
    leaves, structure = flatten(operands)
    graph = graph_of([predicate, *leaves])
    values = as_operands(graph, [predicate, *leaves])
    tracer = RegionTracer(graph)
    inputs = [(value.name, value.type) for value in values[1:]]

    def call(branch: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: branch(*unflatten(structure, arguments))

    then, result = trace_region(tracer, "then", call(then_function), inputs)
    otherwise, other = trace_region(tracer, "else", call(else_function), inputs)
    check_structure("cond: the branches return different structures", result, other)
    node = graph.create(If(), (*values, *tracer.close()), regions=(then, otherwise))
    return unflatten(result, node.results)


@op("while", family=Family.CONTROL, traits=Trait.SEQUENCES, regions=("condition", "body"))
class While(RegionOp):
    """Replace the carries by what the body makes of them for as long as the condition holds.

    All operands are carries; one that the body hands on unchanged is a constant of the loop. More
    iterations than ``limit``, if there is one, are an error.
    """

    limit: int | None = None

    def infer(self, regions: Sequence[Graph], *carry: ValueType) -> tuple[ValueType, ...]:
        require(
            self.limit is None or self.limit >= 0,
            "while: the limit is negative",
            expected="a number of iterations, or none",
            found=self.limit,
        )
        condition, body = regions
        check_inputs("while: condition", condition, carry)
        check_inputs("while: body", body, carry)
        types = [output.type for output in condition.outputs]
        require(
            types == [TensorType(bool_, ())],
            "while: the condition must give one bool",
            expected="bool[]",
            found=", ".join(map(str, types)) or "nothing",
        )
        check_carries("while", body, carry, exactly=True)
        return tuple(map(without_layout, carry))

    def steps(self, regions: Sequence[Graph], sizes: Sizes, *carry: Any) -> Steps:
        condition, body = regions
        state = list(carry)
        iterations = 0
        while True:
            (goes_on,) = yield condition, state
            if not bool(goes_on):
                return tuple(state)
            if self.limit is not None and iterations >= self.limit:
                raise EvaluationError(
                    f"while: still going after {iterations} iterations",
                    expected=f"the condition to be false after at most {self.limit}",
                )
            state = yield body, state
            iterations += 1

    def vjp(self, node: Node, *grads: Value, pullback: Pullback) -> Gradients:
        raise DifferentiationError(
            "while has no gradient in reverse mode",
            expected="a loop whose number of iterations is known before it runs",
            hint="use scan (or for_loop) with a fixed length, or stop_gradient what goes in",
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)

        def count_down(count: Value, x: Value) -> Any:
            def body(carry: Any) -> Any:
                return carry[0] + -1, carry[1] * 1.5

            return while_loop(lambda carry: elementwise.less(0, carry[0]), body, (count, x))

        def captured(bound: Value, x: Value) -> Any:
            steps = while_loop(lambda i: elementwise.less(i, bound), lambda i: i + 1, 0, limit=9)
            return steps, x

        yield Sample(count_down, (np.array(3), x), "", False)
        yield Sample(count_down, (np.array(0), x), "no iteration", False)
        yield Sample(count_down, (np.array(1), np.zeros((0,), np.float32)), "empty", False)
        yield Sample(captured, (np.array(4), x), "captures", False)


@function
def while_loop(
    condition_function: Callable[[Any], Any],
    body_function: Callable[[Any], Any],
    initial: Any,
    limit: int | None = None,
) -> Any:
    """``carry = body_function(carry)``, from ``initial``, while ``condition_function(carry)``.

    The carry keeps its structure and types. It has no gradient; ``scan`` and ``for_loop`` have.
    """
    leaves, structure = flatten(initial)
    graph = graph_of(leaves)
    values = as_operands(graph, leaves)
    tracer = RegionTracer(graph)
    inputs = [(value.name, value.type) for value in values]

    def call(part: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda *arguments: part(unflatten(structure, arguments))

    condition, _ = trace_region(tracer, "condition", call(condition_function), inputs)
    body, result = trace_region(tracer, "body", call(body_function), inputs)
    check_structure("while_loop: the body changes the carry's structure", structure, result)
    captured = tracer.close()
    body.set_outputs([*body.outputs, *body.inputs[len(values) :]])
    node = graph.create(While(limit), (*values, *captured), regions=(condition, body))
    return unflatten(structure, node.results[: len(values)])


@op("scan", family=Family.CONTROL, traits=Trait.SEQUENCES, regions=("body",))
class Scan(RegionOp):
    """Run the body once for each index of the sequences' first axis, handing carries on.

    The first ``carries`` operands are the carries, the next ``sequences`` are taken apart along
    axis 0, and the rest are constants that every step sees whole. The body returns the next
    carries, then what is stacked along axis 0 of the other results. ``length`` is the number of
    steps, needed where there is no sequence to give it. With ``reverse`` the last index comes
    first; results are stacked at the index that they belong to.
    """

    carries: int
    sequences: int
    length: Dim | None = None
    reverse: bool = False

    def infer(self, regions: Sequence[Graph], *operands: ValueType) -> tuple[ValueType, ...]:
        self._check_counts(len(operands))
        (body,) = regions
        carries, sequences, constants = self.split(operands)
        length = self._length(sequences)
        slices = [slice_type(type_) for type_ in sequences]
        check_inputs("scan: body", body, (*carries, *slices, *constants))
        check_carries("scan", body, carries, exactly=False)
        outputs = [output.type for output in body.outputs[self.carries :]]
        return (*map(without_layout, carries), *(stack_type(type_, length) for type_ in outputs))

    def steps(self, regions: Sequence[Graph], sizes: Sizes, *operands: Any) -> Steps:
        (body,) = regions
        carries, sequences, constants = self.split(operands)
        carry = list(carries)
        length = self._actual_length(sequences)
        stacked: list[list[Any]] = [[] for _ in body.outputs[self.carries :]]
        for index in reversed(range(length)) if self.reverse else range(length):
            slices = [sequence[index, ...] for sequence in sequences]
            outputs = yield body, [*carry, *slices, *constants]
            carry = outputs[: self.carries]
            for items, output in zip(stacked, outputs[self.carries :], strict=True):
                items.append(output)
        outputs = []
        for items, value in zip(stacked, body.outputs[self.carries :], strict=True):
            if items:
                outputs.append(np.stack(items[::-1] if self.reverse else items))
            else:
                outputs.append(np.empty((0, *sizes(value.shape)), value.dtype.numpy))
        return (*carry, *outputs)

    def vjp(self, node: Node, *grads: Value, pullback: Pullback) -> Gradients:
        """A scan in the other direction, over the carries that a forward scan has saved.

        It carries the gradients of the carries and the sums of those of the constants.
        """
        floats = [position for position, value in enumerate(node.operands) if is_float(value)]
        gradients: list[Value | None] = [None] * len(node.operands)
        if not floats:
            return tuple(gradients)
        (body,) = node.regions
        _, sequences, constants = self.split(node.operands)
        saved = self._stack_carries(node)
        arriving = list(zip(grads, node.results, strict=True))
        carry_grads = [g for g, result in arriving[: self.carries] if is_float(result)]
        output_grads = [g for g, result in arriving[self.carries :] if is_float(result)]
        totals = [data.zeros_like(value) for value in constants if is_float(value)]

        region = _BackwardBody(self, body, pullback(body, floats)).graph
        scan = Scan(
            carries=len(carry_grads) + len(totals),
            sequences=len(saved) + len(sequences) + len(output_grads),
            length=self.length,
            reverse=not self.reverse,
        )
        operands = (*carry_grads, *totals, *saved, *sequences, *output_grads, *constants)
        made = node.graph.create(scan, operands, regions=(region,)).results
        carried, summed = made[: len(carry_grads)], made[len(carry_grads) : scan.carries]
        stacked = made[scan.carries :]
        for position, gradient in zip(floats, (*carried, *stacked, *summed), strict=True):
            gradients[position] = gradient
        return tuple(gradients)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        xs = generator.normal(size=(4, 3)).astype(np.float32)
        start = generator.normal(size=(3,)).astype(np.float32)
        factor = np.asarray(0.7, np.float32)

        def decay(start: Value, xs: Value, factor: Value) -> Any:
            def body(carry: Value, x: Value) -> Any:
                following = carry * factor + x * x
                return following, following * carry

            return scan(body, start, xs)

        def backwards(start: Value, xs: Value, factor: Value) -> Any:
            def body(carry: Any, x: Value) -> Any:
                total, count = carry
                return (total * x * factor, count + 1), {"total": total, "count": count}

            (total, count), stacked = scan(body, (start, 0), xs, reverse=True)
            return total, count, stacked["count"], stacked["total"]

        def repeat(start: Value, factor: Value) -> Any:
            return scan(lambda carry, _: (carry * factor, ()), start, length=3)[0]

        def maps(xs: Value) -> Any:
            return scan(lambda _, x: ((), x * 2.0), (), xs)[1]

        yield Sample(decay, (start, xs, factor))
        yield Sample(backwards, (start, xs, factor), "reverse")
        yield Sample(repeat, (start, factor), "no sequence")
        yield Sample(maps, (xs[:, ::2],), "no carry, strided")
        yield Sample(decay, (start, xs[:0], factor), "no step")
        yield Sample(decay, (start[:0], xs[:, :0], factor), "empty", False)

    def split(self, operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Carries, sequences and constants among things that belong to the operands."""
        end = self.carries + self.sequences
        return operands[: self.carries], operands[self.carries : end], operands[end:]

    def _check_counts(self, operands: int) -> None:
        require(
            self.carries >= 0 and self.sequences >= 0,
            "scan: a count is negative",
            expected="carries and sequences of at least 0",
            found=f"carries = {self.carries}, sequences = {self.sequences}",
        )
        require(
            self.carries + self.sequences <= operands,
            "scan: too few operands",
            expected=f"{self.carries} carries and {self.sequences} sequences",
            found=f"{operands} operands",
        )
        require(
            self.sequences > 0 or self.length is not None,
            "scan: nothing says how many steps there are",
            expected="a sequence, or a length",
            found="neither",
        )
        require(
            self.length is None or not provably_less(self.length, 0),
            "scan: the length is negative",
            expected="at least 0 steps",
            found=self.length,
        )

    def _length(self, sequences: Sequence[ValueType]) -> Dim:
        length = self.length
        for type_ in sequences:
            size = sequence_type(type_).shape[0]
            length = size if length is None else same_dim("scan", "the lengths", length, size)
        assert length is not None  # _check_counts has seen to it
        return length

    def _actual_length(self, sequences: Sequence[Array]) -> int:
        sizes = {len(sequence) for sequence in sequences}
        if self.length is not None:
            if not isinstance(self.length, int):
                raise EvaluationError("scan: the length is not known", found=str(self.length))
            sizes.add(self.length)
        if len(sizes) != 1 or min(sizes) < 0:
            raise EvaluationError(
                "scan: no number of steps fits",
                expected="sequences of one length, at least 0",
                found=", ".join(map(str, sorted(sizes))),
            )
        return sizes.pop()

    def _stack_carries(self, node: Node) -> tuple[Value, ...]:
        """The carries at the start of each step, stacked: the same scan with other results."""
        if not self.carries:
            return ()
        body = node.regions[0].clone()
        body.set_outputs([*body.outputs[: self.carries], *body.inputs[: self.carries]])
        return node.graph.create(self, node.operands, regions=(body,)).results[self.carries :]


class _BackwardBody:
    """The body of the scan that differentiates ``scan``: see ``Scan.vjp``.

    Inputs: gradients of the float carries, sums for the float constants; then, slice by slice, the
    saved carries, the sequences, the gradients of the stacked float outputs; then the constants.
    Outputs: the new gradients and sums, then the gradients of the float sequences.
    """

    def __init__(self, scan: Scan, body: Graph, pullback: Graph) -> None:
        self.graph = Graph("body")
        carries, sequences, constants = scan.split(body.inputs)
        outputs = [value for value in body.outputs if is_float(value)]
        float_carries = [value for value in carries if is_float(value)]
        float_sequences = [value for value in sequences if is_float(value)]
        float_constants = [value for value in constants if is_float(value)]
        carry_grads = self._inputs("grad", outputs[: len(float_carries)])
        totals = self._inputs("total", float_constants)
        inside = self._inputs("carry", carries) + self._inputs("slice", sequences)
        output_grads = self._inputs("output_grad", outputs[len(float_carries) :])
        inside += self._inputs("constant", constants)

        found = pullback.copy_into(self.graph, [*inside, *carry_grads, *output_grads])
        new_carries = found[: len(float_carries)]
        slices = found[len(float_carries) : len(float_carries) + len(float_sequences)]
        parts = found[len(float_carries) + len(float_sequences) :]
        with self.graph.as_current():
            sums = [elementwise.add(*pair) for pair in zip(totals, parts, strict=True)]
        self.graph.set_outputs([*new_carries, *sums, *slices])

    def _inputs(self, hint: str, values: Sequence[Value]) -> list[Value]:
        return [
            self.graph.add_input(f"{hint}.{index}", value.type)
            for index, value in enumerate(values)
        ]


@function
def scan(
    body_function: Callable[[Any, Any], Any],
    initial_carry: Any,
    xs: Any = None,
    length: Dim | None = None,
    reverse: bool = False,
) -> Any:
    """``carry, y = body_function(carry, x)`` for each ``x`` of ``xs``: (last carry, stacked ys).

    ``xs`` is a structure of tensors that are taken apart along axis 0; without any, ``length``
    says how many steps there are. The carry keeps its structure and types.

        total, partial = scan(lambda total, x: (total + x, total), 0.0, xs)
    """
    carry_leaves, carry_structure = flatten(initial_carry)
    x_leaves, x_structure = flatten(xs)
    graph = graph_of([*carry_leaves, *x_leaves])
    carries = as_operands(graph, carry_leaves)
    sequences = as_operands(graph, x_leaves)
    tracer = RegionTracer(graph)
    inputs = [(value.name, value.type) for value in carries]
    inputs += [(value.name, slice_type(value.type)) for value in sequences]

    def call(*arguments: Value) -> Any:
        carry = unflatten(carry_structure, arguments[: len(carries)])
        returned = body_function(carry, unflatten(x_structure, arguments[len(carries) :]))
        require(
            isinstance(returned, tuple) and len(returned) == 2,
            "scan: the body must return a pair",
            expected="(next carry, output of this step)",
            found=type(returned).__name__,
        )
        return returned

    body, returned = trace_region(tracer, "body", call, inputs)
    next_structure, y_structure = returned.children
    check_structure("scan: the body changes the carry's structure", carry_structure, next_structure)
    scan_op = Scan(len(carries), len(sequences), length, reverse)
    operands = (*carries, *sequences, *tracer.close())
    results = graph.create(scan_op, operands, regions=(body,)).results
    stacked = unflatten(y_structure, results[len(carries) :])
    return unflatten(carry_structure, results[: len(carries)]), stacked


@function
def for_loop(
    start: Operand | Dim,
    stop: Operand | Dim,
    body_function: Callable[[Any, Any], Any],
    initial: Any,
) -> Any:
    """``carry = body_function(index, carry)`` for each index from ``start`` up to ``stop``.

    Bounds that are ints or dimensions give a ``scan``, which has a gradient; values of the graph
    give a ``while``, which has not.
    """
    if isinstance(start, int | SymbolicDim) and isinstance(stop, int | SymbolicDim):
        leaves, _ = flatten(initial)
        with graph_of(leaves).as_current():
            indices = elementwise.add(data.iota((dim_max(stop - start, 0),)), data.dim(start))
        return scan(lambda carry, index: (body_function(index, carry), ()), initial, indices)[0]
    first, last = (
        data.dim(bound) if isinstance(bound, SymbolicDim) else bound for bound in (start, stop)
    )

    def condition(carry: Any) -> Value:
        return elementwise.less(carry[0], last)

    def body(carry: Any) -> Any:
        return carry[0] + 1, body_function(*carry)

    return while_loop(condition, body, (first, initial))[1]

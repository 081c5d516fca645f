"""Programs that a call completes: native code for what its arguments decide, kept for the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError, InputError, UnsupportedError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.trace import trace
from monograph.ir.build import apply
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.ops.strings import StringConcat
from monograph.runtime.compiled import Executable
from monograph.specialize import staged

STRICT = Options(cache=False, strict=True)
LOOSE = Options(cache=False)
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Shape = Sequence[Any] | None


def model(nodes: list[Any], inputs: Mapping[str, tuple[int, Shape]], output: str = "y") -> Any:
    given = [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()]
    result = helper.make_tensor_value_info(output, FLOAT, None)
    graph = helper.make_graph(nodes, "made", given, [result])
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def reshaped() -> Any:
    """A shape that is an input, and something after it."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    return model(nodes, {"x": (FLOAT, [2, 3, 4]), "shape": (INT, ["n"])})


def assert_as_interpreted(executable: Executable, *inputs: Any) -> None:
    expected = interpret(executable.graph, inputs)
    for got, wanted in zip(executable.run(list(inputs)), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype


class TestContents:
    def test_a_shape_that_is_an_input_decides_the_program(self) -> None:
        executable = compile_graph(reshaped(), STRICT)
        for shape in ([6, 4], [24], [2, -1, 2], [0, 12]):
            assert_as_interpreted(executable, X, np.array(shape))
        assert executable.report.fallbacks == ()

    def test_contents_that_are_sizes_compile_once_for_all_of_them(self) -> None:
        executable = compile_graph(reshaped(), STRICT)
        executable.run([X, np.array([6, 4])])
        made = executable.report.variants
        for shape in ([6, 4], [4, 6], [12, 2]):
            assert_as_interpreted(executable, X + 1, np.array(shape))
        assert executable.report.variants == made
        assert_as_interpreted(executable, X, np.array([6, -1]))
        assert executable.report.variants > made  # -1 is no size

    def test_contents_that_are_computed_are_read_too(self) -> None:
        nodes = [
            helper.make_node("Mul", ["a", "b"], ["shape"]),
            helper.make_node("Expand", ["x", "shape"], ["y"]),
        ]
        given = {"x": (FLOAT, [3, 1]), "a": (INT, [2]), "b": (INT, [2])}
        executable = compile_graph(model(nodes, given), STRICT)
        x = np.ones((3, 1), np.float32)
        assert_as_interpreted(executable, x, np.array([1, 2]), np.array([3, 2]))
        made = executable.report.variants
        assert_as_interpreted(executable, x, np.array([3, 4]), np.array([1, 1]))
        assert executable.report.variants == made  # the same shape, of other factors

    def test_what_is_done_before_the_decision_is_not_done_again(self) -> None:
        nodes = [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("ReduceMax", ["e"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["i"], to=INT),
            helper.make_node("Unsqueeze", ["i", "zero"], ["shape"]),
            helper.make_node("Reshape", ["e", "one"], ["r"]),
            helper.make_node("Expand", ["r", "shape"], ["y"]),
        ]
        inputs = {"x": (FLOAT, [1]), "zero": (INT, [1]), "one": (INT, [1])}
        executable = compile_graph(model(nodes, inputs), STRICT)
        ones = np.array([0]), np.array([1])
        assert_as_interpreted(executable, np.array([1.5], np.float32), *ones)
        exponentials = [each for each in executable.report.kernels if "exp" in each.name.split("_")]
        assert len(exponentials) == 1

    def test_a_wrong_shape_is_an_error_and_the_next_call_is_right(self) -> None:
        executable = compile_graph(reshaped(), STRICT)
        with pytest.raises(EvaluationError):
            executable.run([X, np.array([5, 5])])
        assert_as_interpreted(executable, X, np.array([6, 4]))

    def test_a_wrong_argument_is_named(self) -> None:
        executable = compile_graph(reshaped(), STRICT)
        with pytest.raises(InputError, match="%x has the wrong dtype"):
            executable.run([X.astype(np.float64), np.array([24])])


class TestWhatIsLikely:
    """What calls will probably need is compiled before the first one."""

    def test_a_count_that_is_an_input(self) -> None:
        nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=0)]
        graph = model(nodes, {"x": (FLOAT, ["n"]), "k": (INT, [1])})
        executable = compile_graph(graph, STRICT)
        made = executable.report.variants
        assert made
        for count, size in ((3, 9), (2, 5), (7, 7)):
            x = np.random.default_rng(size).normal(size=size).astype(np.float32)
            assert_as_interpreted(executable, x, np.array([count]))
        assert executable.report.variants == made
        with pytest.raises(EvaluationError, match="not that many elements"):
            executable.run([X[0, 0], np.array([9])])

    def test_an_input_that_is_called_like_a_node(self) -> None:
        nodes = [helper.make_node("TopK", ["reshape", "k"], ["y", "i"], axis=0)]
        graph = model(nodes, {"k": (INT, [1]), "reshape": (FLOAT, ["n"])})
        executable = compile_graph(graph, STRICT)
        made = executable.report.variants
        assert made
        assert_as_interpreted(executable, np.array([2]), X[0, 0])
        assert executable.report.variants == made

    @pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, INT])
    def test_a_range_up_to_a_number_that_is_computed(self, dtype: int) -> None:
        """As models that make speech of durations have it: its limit is a float, too."""
        nodes = [
            helper.make_node("Ceil", ["x"], ["durations"]),
            helper.make_node("ReduceSum", ["durations"], ["total"], keepdims=0),
            helper.make_node("Cast", ["total"], ["limit"], to=dtype),
            helper.make_node("Constant", [], ["c0"], value_float=0.0),
            helper.make_node("Constant", [], ["c1"], value_float=1.0),
            helper.make_node("Cast", ["c0"], ["zero"], to=dtype),
            helper.make_node("Cast", ["c1"], ["one"], to=dtype),
            helper.make_node("Range", ["zero", "limit", "one"], ["places"]),
            helper.make_node("Cast", ["places"], ["y"], to=FLOAT),
        ]
        executable = compile_graph(model(nodes, {"x": (FLOAT, ["n"])}), STRICT)
        made = executable.report.variants
        for durations in ([1.5, 2], [0.5, 7, 9.5], [40]):
            assert_as_interpreted(executable, np.array(durations, np.float32))
        assert executable.report.variants == made
        for few in ([0.0], [0.5], [-3.0]):
            assert_as_interpreted(executable, np.array(few, np.float32))

    def test_a_range_up_to_a_number_that_is_not_whole(self) -> None:
        nodes = [
            helper.make_node("Constant", [], ["zero"], value_float=0.0),
            helper.make_node("Constant", [], ["one"], value_float=1.0),
            helper.make_node("Range", ["zero", "x", "one"], ["y"]),
        ]
        executable = compile_graph(model(nodes, {"x": (FLOAT, [])}), STRICT)
        for limit in (2.5, 3.0, 1e-9, 7.0, -2.5):
            assert_as_interpreted(executable, np.array(limit, np.float32))

    def test_both_sides_of_a_condition(self) -> None:
        branches = {
            f"{name}_branch": helper.make_graph(
                [helper.make_node("Concat", ["x"] * count, ["made"], axis=0)],
                name,
                [],
                [helper.make_tensor_value_info("made", FLOAT, None)],
            )
            for name, count in (("then", 1), ("else", 3))
        }
        nodes = [
            helper.make_node("If", ["p"], ["r"], **branches),
            helper.make_node("Exp", ["r"], ["y"]),
        ]
        inputs = {"x": (FLOAT, [4]), "p": (TensorProto.BOOL, [])}
        executable = compile_graph(model(nodes, inputs), STRICT)
        made = executable.report.variants
        for predicate in (True, False):
            assert_as_interpreted(executable, X[0, 0], np.array(predicate))
        assert executable.report.variants == made

    def test_what_needs_numbers_waits_for_them(self) -> None:
        nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"])]
        graph = model(nodes, {"x": (FLOAT, [2, 3, 4]), "axes": (INT, [1])})
        executable = compile_graph(graph, STRICT)
        assert executable.report.variants == 0
        for axis in (2, 1, -1):
            assert_as_interpreted(executable, X, np.array([axis]))


def test_of_what_is_put_together_the_numbers_that_are_data_are_read() -> None:
    nodes = [
        helper.make_node("Mul", ["n", "two"], ["rows"]),
        helper.make_node("Concat", ["one", "rows", "four"], ["shape"], axis=0),
        helper.make_node("Expand", ["x", "shape"], ["y"]),
    ]
    given = {"x": (FLOAT, [4]), "n": (INT, [1])}
    constants = {"one": 1, "two": 2, "four": 4}
    made = [
        helper.make_node("Constant", [], [name], value_ints=[number])
        for name, number in constants.items()
    ]
    executable = compile_graph(model([*made, *nodes], given), STRICT)
    first = executable.report.variants
    for count in (3, 1, 8):
        assert_as_interpreted(executable, X[0, 0], np.array([count]))
    assert executable.report.variants == first


def test_sizes_that_are_read_stretch_what_has_size_one() -> None:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["e"]),
        helper.make_node("Expand", ["one", "rows"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["s"]),
        helper.make_node("Concat", ["e", "s"], ["y"], axis=0),
    ]
    given = {"x": (FLOAT, ["n", 1]), "shape": (INT, [2]), "one": (FLOAT, [1]), "rows": (INT, [2])}
    executable = compile_graph(model(nodes, given), LOOSE)
    one = np.ones(1, np.float32)
    for count, rows in ((3, 3), (1, 3), (1, 2), (3, 1), (2, 2), (1, 1)):
        x = np.arange(count, dtype=np.float32).reshape(count, 1)
        shape = np.array([rows, 1])
        (got,) = executable.run([x, shape, one, shape])
        size = max(count, rows)
        wanted = [np.broadcast_to(each, (size, 1)) for each in (x, x + 1)]
        np.testing.assert_array_equal(got, np.concatenate(wanted))
    with pytest.raises(EvaluationError):
        executable.run([np.ones((2, 1), np.float32), np.array([3, 1]), one, np.array([2, 1])])


class TestRanks:
    def test_the_rank_of_an_argument_decides_the_program(self) -> None:
        nodes = [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("ReduceSum", ["r", "axes"], ["y"], keepdims=0),
        ]
        graph = model(nodes, {"x": (FLOAT, None), "axes": (INT, [1])})
        executable = compile_graph(graph, STRICT)
        for x in (X, X[0], X[0, 0] - 2):
            assert_as_interpreted(executable, x, np.array([-1]))
        made = executable.report.variants
        assert_as_interpreted(executable, X[:, :2, 1:], np.array([-1]))
        assert executable.report.variants == made  # other sizes need no other code


class TestSizes:
    def test_what_follows_is_compiled_once_for_all_sizes(self) -> None:
        def chosen(x: Any) -> Any:
            places = F.nonzero(F.greater(x, 0.0))
            return F.sum(F.gather(x, places) * 2.0), places

        executable = compile_graph(trace(chosen, "f32[2, 3, 4]"), STRICT)
        made = executable.report.variants
        for x in (X - 20, X - 3, X * 0):
            assert_as_interpreted(executable, x)
        assert executable.report.variants == made
        assert executable.report.fallbacks == ()

    def test_an_op_without_native_code_is_named_and_the_rest_is_native(self) -> None:
        def counted(x: Any) -> Any:
            return F.cast(F.bincount(x * 2), "f32") * 0.5

        graph = trace(counted, "i64[5]")
        executable = compile_graph(graph, LOOSE)
        assert_as_interpreted(executable, np.array([0, 3, 1, 1, 0]))
        (fallback,) = executable.report.fallbacks
        assert "bincount" in fallback
        assert executable.report.reasons == (
            "bincount decides the size of its result when it runs",
        )
        assert executable.report.kernels
        with pytest.raises(UnsupportedError, match="bincount decides the size"):
            compile_graph(graph, STRICT)


class TestSequences:
    def test_a_sequence_of_known_length_dissolves(self) -> None:
        nodes = [
            helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
            helper.make_node("SequenceInsert", ["s", "a", "k"], ["t"]),
            helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        ]
        inputs = {"a": (FLOAT, [2]), "b": (FLOAT, [3]), "k": (INT, [])}
        executable = compile_graph(model(nodes, inputs), STRICT)
        a, b = np.ones(2, np.float32), np.zeros(3, np.float32)
        for position in (0, -1, 2):
            assert_as_interpreted(executable, a, b, np.array(position))

    def test_a_loop_over_a_sequence_is_unrolled(self) -> None:
        floats = helper.make_tensor_sequence_value_info
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["going"], ["goes_on"]),
                helper.make_node("SequenceInsert", ["before", "x"], ["after"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("turn", INT, []),
                helper.make_tensor_value_info("going", TensorProto.BOOL, []),
                floats("before", FLOAT, None),
            ],
            [
                helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
                floats("after", FLOAT, None),
            ],
        )
        nodes = [
            helper.make_node("SequenceConstruct", ["x"], ["first"]),
            helper.make_node("Loop", ["times", "", "first"], ["all"], body=body),
            helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
        ]
        executable = compile_graph(model(nodes, {"x": (FLOAT, [3]), "times": (INT, [])}), STRICT)
        for times in (2, 0, 5):
            assert_as_interpreted(executable, X[0, :, 0].copy(), np.array(times))


def test_a_loop_that_stacks_results_is_one_program_for_all_trip_counts() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Mul", ["before", "half"], ["after"]),
            helper.make_node("Exp", ["after"], ["one"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", INT, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", FLOAT, [3]),
            helper.make_tensor_value_info("one", FLOAT, [3]),
        ],
    )
    nodes = [
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Loop", ["times", "", "x"], ["last", "all"], body=body),
        helper.make_node("Add", ["all", "last"], ["y"]),
    ]
    executable = compile_graph(model(nodes, {"x": (FLOAT, [3]), "times": (INT, [])}), STRICT)
    made = executable.report.variants
    for times in (2, 7, 5):
        assert_as_interpreted(executable, X[0, 0, :3].copy(), np.array(times))
    assert executable.report.variants == made
    for times in (0, 1, -3):
        assert_as_interpreted(executable, X[0, 0, :3].copy(), np.array(times))


class TestBounds:
    def test_too_many_variants_are_interpreted_and_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(staged, "MOST_VARIANTS", 2)
        executable = compile_graph(reshaped(), LOOSE)
        for shape in ([6, 4], [24], [6, -1], [12, 2]):
            assert_as_interpreted(executable, X, np.array(shape))
        assert "more than 2 variants" in executable.report.reasons[0]
        assert executable.report.fallbacks

    def test_what_comes_often_takes_the_place_of_the_least_recent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(staged, "MOST_VARIANTS", 2)
        executable = compile_graph(reshaped(), LOOSE)
        kinds = [np.array(each) for each in ([6, 4], [24], [6, -1])]
        for kind in kinds:
            assert_as_interpreted(executable, X, kind)
        made = executable.report.variants
        assert_as_interpreted(executable, X, kinds[2])
        assert executable.report.variants == made + 1
        assert_as_interpreted(executable, X, kinds[2])
        assert_as_interpreted(executable, X, kinds[1])
        assert executable.report.variants == made + 1  # the first one made room
        for _ in range(100):
            for kind in kinds:
                executable.run([X, kind])
        assert executable.report.variants < made + 16

    def test_strict_programs_compile_again_rather_than_interpret(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(staged, "MOST_VARIANTS", 2)
        executable = compile_graph(reshaped(), STRICT)
        for shape in ([6, 4], [24], [6, -1], [6, 4]):
            assert_as_interpreted(executable, X, np.array(shape))
        assert executable.report.variants == 4


class TestSaving:
    def test_the_graph_is_saved_and_completed_again(self, tmp_path: Path) -> None:
        executable = compile_graph(reshaped(), STRICT)
        expected = executable.run([X, np.array([6, 4])])
        loaded = monograph.load(executable.save(tmp_path / "program.mono"))
        assert isinstance(loaded, Executable)
        assert loaded.report.specialised == executable.report.specialised
        np.testing.assert_array_equal(loaded.run([X, np.array([6, 4])])[0], expected[0])
        assert loaded.report.variants

    def test_its_parts_are_compiled_as_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = Options("O1", strict=True, fusion=False, winograd_tolerance=0)
        executable = compile_graph(reshaped(), options)
        monkeypatch.setattr(staged, "MOST_STAGES", 1)
        loaded = monograph.load(executable.save(tmp_path / "program.mono"))
        assert isinstance(loaded, Executable) and loaded.stage is not None
        assert loaded.stage.settings == options.settings
        with pytest.raises(UnsupportedError, match="more than 1 decisions"):
            loaded.run([X, np.array([24])])


def test_torch_programs_whose_sizes_depend_on_data_are_native() -> None:
    torch = pytest.importorskip("torch")

    def chosen(x: Any) -> Any:
        positive = x[x > 0]
        return positive.sum(), positive * 2

    x = torch.tensor([[1.0, -2.0, 3.0], [-1.0, 0.5, 0.0]])
    compiled = monograph.compile(chosen, x, strict=True)
    for each in (x, -x, x * 0):
        for got, wanted in zip(compiled(each), chosen(each), strict=True):
            torch.testing.assert_close(got, wanted)


def test_counts_are_native_however_many_there_are() -> None:
    torch = pytest.importorskip("torch")

    def counts(x: Any, weights: Any) -> Any:
        return torch.bincount(x), torch.bincount(x, weights, minlength=9), x.repeat_interleave(x)

    example = torch.tensor([1, 4, 1, 0, 4])
    compiled = monograph.compile(counts, example, torch.rand(5), cache=False, strict=True)
    for x in (example, torch.tensor([0, 0, 0, 0, 30]), torch.tensor([3, 2, 1, 2, 3])):
        weights = torch.rand(5)
        for got, expected in zip(compiled(x, weights), counts(x, weights), strict=True):
            torch.testing.assert_close(got, expected)
    with pytest.raises(EvaluationError):
        compiled(torch.tensor([1, -1, 0, 0, 0]), torch.rand(5))


def test_torch_programs_that_read_a_number_are_native() -> None:
    torch = pytest.importorskip("torch")

    class Repeated(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be absent
        def forward(self, x: Any, count: Any) -> Any:
            number = count.item()
            torch._check(number >= 0)
            torch._check(number <= 100)
            return torch.zeros(number) + x.sum()

    x = torch.ones(3)
    compiled = monograph.compile(Repeated(), x, torch.tensor(4), strict=True)
    for count in (4, 0, 9):
        torch.testing.assert_close(compiled(x, torch.tensor(count)), torch.full((count,), 3.0))


def test_strings_that_nobody_reads_leave_native_code() -> None:
    graph = Graph("main")
    x = graph.add_input("x", TensorType(f32, ()))
    with graph.as_current():
        words = np.array(["a", "b"], np.object_)
        apply(StringConcat(), words, words)
        graph.set_outputs([x + 1.0, x])
    executable = compile_graph(graph, Options(level="O0", cache=False))
    one = np.float32(1.0)
    assert [float(each) for each in executable(one)] == [2.0, 1.0]
    assert executable.report.fallbacks == ()

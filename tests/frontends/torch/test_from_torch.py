"""Modules, functions, exported programs and FX graphs become graphs that mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError, InputError, MonographError, UnsupportedError
from monograph.frontends.torch import (
    ImportedModel,
    InputKind,
    find_unsupported,
    from_torch,
    import_torch,
)
from monograph.frontends.torch.runner import TorchModel
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def run(model: ImportedModel, *args: Any, **kwargs: Any) -> Any:
    verify(model.graph)
    return TorchModel(model)(*args, **kwargs)


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))
        self.tied = self.weight
        self.register_buffer("shift", torch.ones(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, *, bias: torch.Tensor) -> dict[str, Any]:
        self.steps.add_(1)
        y = x * self.weight + self.shift * self.tied
        return {"sum": y + bias, "parts": (y.exp(), bias)}


def test_a_module_gives_the_results_of_eager_in_its_own_structure() -> None:
    module, x, bias = Scale(), torch.randn(3, 4), torch.randn(4)
    model = import_torch(module, x, kwargs={"bias": bias})
    expected = module(x, bias=bias)
    state = {"steps": torch.tensor(5)}
    got = TorchModel(model, state)(x, bias=bias)
    torch.testing.assert_close(got, expected)


def test_a_buffer_that_is_written_is_an_input_that_an_output_updates() -> None:
    module = Scale()
    model = import_torch(module, torch.randn(3, 4), kwargs={"bias": torch.randn(4)})
    names = [value.name for value in model.graph.inputs]
    assert names == ["x", "bias", "steps"]
    assert model.graph.updates == {3: 2}
    steps = torch.tensor(5)
    TorchModel(model, {"steps": steps})(torch.randn(3, 4), bias=torch.randn(4))
    assert steps == 6


def test_a_tensor_that_is_written_out_in_a_function_is_fresh_in_every_call() -> None:
    def total(x: torch.Tensor) -> torch.Tensor:
        start = torch.tensor([1.0, 2.0])
        start += x
        return start * torch.tensor([3.0, 4.0])

    x = torch.tensor([0.5, 0.25])
    compiled = monograph.compile(total, x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), total(x))


def test_weights_share_memory_with_torch_and_tied_ones_are_one() -> None:
    module = Scale()
    graph = from_torch(module, torch.randn(3, 4), kwargs={"bias": torch.randn(4)})
    weights = [node for node in graph.nodes if node.op.name == "weight"]
    assert [node.op.attributes()["label"] for node in weights] == ["weight", "shift"]
    array = weights[0].op.attributes()["data"].array()
    assert np.shares_memory(array, module.weight.detach().numpy())


def test_bfloat16_weights_share_memory_too() -> None:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.randn(40, dtype=torch.bfloat16))
    module.forward = lambda x: x * module.weight
    graph = from_torch(module, torch.randn(40, dtype=torch.bfloat16))
    (weight,) = [node for node in graph.nodes if node.op.name == "weight"]
    array = weight.op.attributes()["data"].array()
    assert array.__array_interface__["data"][0] == module.weight.data_ptr()


def test_what_torch_suggests_for_sizes_that_cannot_be_free_is_told() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 7 else x

    batch = torch.export.Dim("batch")
    with pytest.raises(UnsupportedError, match=r"Constraints violated \(batch\)") as caught:
        monograph.from_torch(choose, torch.ones(9), dynamic_shapes=({0: batch},))
    assert "generated guard 8 <= " in str(caught.value.found)
    assert "batch = Dim('batch', min=8)" in str(caught.value.hint)


def test_dynamic_shapes_become_symbols_with_the_names_and_ranges_of_the_user() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1) + x.shape[0]

    model = import_torch(function, torch.randn(4, 6), dynamic_shapes={"x": {0: batch}})
    assert model.graph.inputs[0].shape == (Symbol("batch", 2, 64), 6)
    assert str(model.graph.outputs[0].type) == "f32[2*batch, 3]"
    x = torch.randn(7, 6)
    torch.testing.assert_close(run(model, x), function(x))
    with pytest.raises(InputError, match="outside its declared range"):
        run(model, torch.randn(65, 6))


def test_training_makes_parameters_inputs_that_gradients_reach() -> None:
    module = torch.nn.Module()
    module.forward = lambda x: (torch.tanh(x) * module.weight).exp().view(()) * 2
    x = torch.randn(1)
    module.weight = torch.nn.Parameter(torch.randn(1))
    model = import_torch(module, x, training=True)
    kinds = [each.kind for each in model.inputs]
    assert kinds == [InputKind.USER, InputKind.PARAMETER]
    module.forward(x).backward()
    (gradient,) = interpret(
        grad(model.graph, ["weight"]), [x.numpy(), module.weight.detach().numpy()]
    )
    torch.testing.assert_close(torch.from_numpy(gradient), module.weight.grad)


def test_a_module_is_read_in_eval_mode_and_left_as_it_was() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.ReLU())
    module[1].eval()
    graph = from_torch(module, torch.randn(3))
    assert ops_of(graph) == ["relu"]
    assert (module.training, module[0].training, module[1].training) == (True, True, False)


def test_training_mode_draws_from_a_key_that_is_the_last_input() -> None:
    graph = from_torch(torch.nn.Dropout(0.5), torch.randn(8), training=True)
    assert [str(value.type) for value in graph.inputs] == ["f32[8]", "u32[2]"]
    x = np.ones(1000, np.float32)
    graph = from_torch(torch.nn.Dropout(0.5), torch.randn(1000), training=True)
    (a,) = interpret(graph, [x, np.array([1, 2], np.uint32)])
    (b,) = interpret(graph, [x, np.array([1, 3], np.uint32)])
    assert set(np.unique(a)) == {0.0, 2.0}
    assert 400 < np.count_nonzero(a) < 600
    assert (a != b).any()


@pytest.mark.parametrize("kind", ["Dropout", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout"])
def test_dropout_in_place_is_nothing_when_it_is_off(kind: str) -> None:
    module = getattr(torch.nn, kind)(0.5, inplace=True).eval()
    x = torch.randn(2, 3, 4, 5)
    model = import_torch(lambda x: module(x + 1), x, opaque=True)
    assert "torch.call" not in ops_of(model.graph)
    torch.testing.assert_close(run(model, x), x + 1)


def test_writing_in_place_makes_a_new_value() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.mul_(2)
        return y.relu_() + 1

    x = torch.randn(2, 3)
    model = import_torch(function, x)
    assert ops_of(model.graph).count("relu") == 1
    torch.testing.assert_close(run(model, x), function(x))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y[0].mul_(2),
        lambda y: y.t()[1].zero_(),
        lambda y: y[:, ::2].add_(1),
        lambda y: y.view(-1)[1:3].fill_(7),
        lambda y: y.diagonal().neg_(),
    ],
)
def test_writing_through_a_view_changes_the_whole(write: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        write(y)
        return y * 2

    x = torch.randn(3, 4)
    torch.testing.assert_close(run(import_torch(function, x), x), function(x))


def test_an_argument_that_the_function_overwrites_comes_back_overwritten() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    model = import_torch(function, torch.zeros(3))
    assert model.graph.updates == {1: 0}
    x = torch.zeros(3)
    torch.testing.assert_close(run(model, x), torch.full((3,), 2.0))
    torch.testing.assert_close(x, torch.ones(3))


@pytest.mark.parametrize("name", ["t_", "squeeze_"])
def test_an_argument_that_would_get_another_shape_is_named(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = getattr(x * 2, name)()
        getattr(x, name)()
        return x + y

    with pytest.raises(UnsupportedError, match="gives another shape to x"):
        import_torch(function, torch.randn(1, 3))


def test_an_argument_may_be_detached_in_place() -> None:
    x = torch.randn(3)
    torch.testing.assert_close(run(import_torch(lambda x: x.detach_() + 1, x), x), x + 1)


def test_a_graph_from_symbolic_trace_is_read() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = torch.nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x).abs().view(-1) + torch.exp(x).flatten()

    x = torch.randn(2, 3)
    model = import_torch(torch.fx.symbolic_trace(Two()), x)
    assert "gelu" in ops_of(model.graph)
    torch.testing.assert_close(run(model, x), Two()(x))


def test_a_graph_of_aten_ops_without_types_is_typed_from_the_inputs() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.mul.Tensor, (x, 3)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with pytest.raises(InputError, match="do not know their types"):
        from_torch(module)
    model = import_torch(module, torch.randn(2))
    torch.testing.assert_close(run(model, torch.ones(2)), torch.full((2,), 3.0))


def test_an_exported_program_is_read_as_it_is() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.randn(3),))
    assert ops_of(from_torch(program)) == ["relu"]
    with pytest.raises(InputError, match="brings its own inputs"):
        from_torch(program, torch.randn(3))


def test_nodes_know_the_user_s_line_and_module() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)  # the line

    graph = from_torch(torch.nn.Sequential(Inner()), torch.randn(3))
    (node,) = graph.nodes
    assert node.location is not None
    assert node.location.file == __file__
    lines = Path(__file__).read_text().split("\n")
    assert "# the line" in lines[node.location.line - 1]
    assert node.location.scope == "0"


def test_nodes_know_the_line_of_a_function() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)  # the other line

    (node,) = from_torch(function, torch.randn(3)).nodes
    assert node.location is not None
    lines = Path(__file__).read_text().split("\n")
    assert "# the other line" in lines[node.location.line - 1]


def test_a_check_of_data_is_made_when_the_graph_runs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x[0] > 0, "the first must be positive")
        return x * 2

    model = import_torch(function, torch.ones(3))
    torch.testing.assert_close(run(model, torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(EvaluationError, match="the first must be positive"):
        run(model, -torch.ones(3))


def test_a_check_of_data_is_made_in_native_code() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "all must be positive")
        return x * 2

    compiled = monograph.compile(function, torch.ones(3), cache=False, strict=True)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(EvaluationError, match="all must be positive"):
        compiled(torch.tensor([1.0, 1.0, -1.0]))


def test_a_size_read_from_data_is_a_symbol() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        count = x[0].to(torch.int64).item()
        torch._check(count >= 0)
        torch._check(count < 10)
        return torch.zeros(count) + x[1].item()

    model = import_torch(function, torch.tensor([3.0, 1.5]))
    torch.testing.assert_close(run(model, torch.tensor([5.0, 2.5])), torch.full((5,), 2.5))


def test_every_unsupported_op_is_named_with_its_line() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    twice = [graph.call_function(torch.ops.aten._foobar.default, (x,)) for _ in range(2)]
    graph.output(tuple(twice))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    for node in module.graph.nodes:
        node.meta["val"] = torch.empty(2, 2)
        node.meta["stack_trace"] = 'File "model.py", line 7, in forward\n    foobar(x)'
    (problem,) = find_unsupported(module)
    assert (problem.op, problem.count) == ("aten._foobar.default", 2)
    assert "model.py:7 in forward" in problem.where
    with pytest.raises(UnsupportedError, match="_foobar"):
        from_torch(module)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(MonographError, match="something to call"):
        from_torch(3, torch.ones(2))


def test_an_example_given_twice_is_two_inputs() -> None:
    tensor = torch.randn(4)
    graph = from_torch(lambda x, y: x - 2 * y, tensor, tensor)
    (got,) = interpret(graph, [np.ones(4, np.float32), np.zeros(4, np.float32)])
    assert np.array_equal(got, np.ones(4, np.float32))


def test_an_example_that_is_a_weight_stays_an_input() -> None:
    layer = torch.nn.Linear(3, 3, bias=False)
    graph = from_torch(layer, layer.weight)
    (got,) = interpret(graph, [np.zeros((3, 3), np.float32)])
    assert not got.any()

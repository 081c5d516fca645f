"""Passes of ours on torch's own graphs: what is returned is called, trained and saved as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import monograph
from monograph.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Wasteful(torch.nn.Module):
    """x * 1, the same layer twice, and a sum that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        unread = x.sum()  # noqa: F841
        return self.layer(x * 1.0) + torch.relu(self.layer(x))


def targets(module: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def linear_count(module: torch.fx.GraphModule) -> int:
    return sum("linear" in name for name in targets(module))


def test_passes_run_and_parameters_are_shared() -> None:
    model, x = Wasteful().eval(), torch.randn(3, 4)
    traced = torch.fx.symbolic_trace(model)
    made = monograph.fx.optimize(traced, x, passes="canonicalize,simplify,cse,dce")
    torch.testing.assert_close(made(x), model(x))
    assert linear_count(made) == 1 and len(targets(made)) == 3
    assert made.layer.weight is model.layer.weight
    assert made.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        model.layer.weight.zero_()
    torch.testing.assert_close(made(x), model(x))


def test_one_pass_alone_changes_that_alone() -> None:
    traced = torch.fx.symbolic_trace(Wasteful().eval())
    x = torch.randn(3, 4)
    made = monograph.fx.optimize(traced, x, passes="dce")
    assert linear_count(made) == 2 and not any("sum" in name for name in targets(made))


def test_the_result_trains() -> None:
    model, x = Wasteful().eval(), torch.randn(3, 4)
    made = monograph.fx.optimize(torch.fx.symbolic_trace(model), x)
    made(x).sum().backward()
    ours = model.layer.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(ours, model.layer.weight.grad)


def test_nested_arguments_and_results_keep_their_form() -> None:
    def function(pair: Any, by_name: Any) -> Any:
        a, b = pair
        total = a * 1.0 + b
        return {"sum": total, "parts": (a - by_name["c"], total)}

    class Nested(torch.nn.Module):
        def forward(self, pair: Any, by_name: Any) -> Any:
            return function(pair, by_name)

    traced = torch.fx.symbolic_trace(
        Nested(), concrete_args={"pair": (torch.fx.PH, torch.fx.PH), "by_name": {"c": torch.fx.PH}}
    )
    arguments = ((torch.ones(2), torch.ones(2)), {"c": torch.ones(2)})
    made = monograph.fx.optimize(traced, *arguments)
    found, expected = made(*arguments), function(*arguments)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found["sum"], expected["sum"])
    torch.testing.assert_close(found["parts"], expected["parts"])


def test_a_backend_of_torch_compile_may_optimise_its_graph() -> None:
    seen = []

    def backend(graph_module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        seen.append(monograph.fx.optimize(graph_module, *examples))
        return seen[-1].forward

    model, x = Wasteful().eval(), torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))
    assert linear_count(seen[0]) == 1 and len(targets(seen[0])) == 3


def test_buffers_that_are_written_are_written_by_the_result() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1.0)
            return x * 1.0 + self.count

    model = Counter().eval()
    x = torch.ones(2)
    made = monograph.fx.optimize(torch.export.export(model, (x,)).module(), x)
    before = float(made.count)
    assert float(made(x)[0]) == before + 2.0 and float(made.count) == before + 1.0


@torch.library.custom_op("monograph_tests::swish_like", mutates_args=())
def swish_like(x: torch.Tensor, slope: float) -> torch.Tensor:
    return x * torch.sigmoid(slope * x)


@swish_like.register_fake
def _(x: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_op_that_we_do_not_know_stays_as_it_is() -> None:
    class Custom(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return swish_like(x * 1.0, 2.0) + 0.0 * x

    model, x = Custom().eval(), torch.randn(5)
    made = monograph.fx.optimize(torch.fx.symbolic_trace(model), x)
    torch.testing.assert_close(made(x), model(x))
    assert "monograph_tests.swish_like.default" in targets(made)
    assert sum("mul" in name for name in targets(made)) == 1


def test_examples_are_asked_for_where_the_graph_knows_no_types() -> None:
    traced = torch.fx.symbolic_trace(Wasteful().eval())
    with pytest.raises(InputError, match="do not know their types") as caught:
        monograph.fx.optimize(traced)
    assert "monograph.fx.optimize(graph_module, example_input" in str(caught.value)
    exported = torch.export.export(Wasteful().eval(), (torch.randn(3, 4),)).module()
    assert linear_count(monograph.fx.optimize(exported)) == 1


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(InputError, match="not a graph of torch"):
        monograph.fx.optimize(Wasteful(), torch.randn(3, 4))  # type: ignore[arg-type]


class Pair(NamedTuple):
    """What a graph may return, too."""

    first: Any
    second: Any


IMAGE = torch.randn(1, 2, 4, 4)
ROW = torch.tensor([3.0, 1.0, 1.0, 2.0])

AROUND: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor, str]] = {
    "a pool's indices": (
        lambda x: torch.nn.functional.max_pool2d(x * 1.0, 2, return_indices=True),
        IMAGE,
        "max_pool2d_with_indices",
    ),
    "unique": (lambda x: (torch.unique(x * 1.0), torch.relu(x * 1.0)), ROW, "unique"),
    "counts": (
        lambda x: torch.unique_consecutive(x * 1.0, return_counts=True), ROW, "unique_consecutive"
    ),
    "random numbers": (lambda x: x * 1.0 + torch.rand_like(x), ROW, "rand_like"),
    "dropout": (lambda x: torch.nn.functional.dropout(x * 1.0), ROW, "dropout"),
    "sizes": (lambda x: (x.shape[0], torch.relu(x * 1.0), x.size(1)), IMAGE, "relu"),
    "a number": (lambda x: (torch.sum(x * 1.0).item(), None, True), ROW, "sum"),
    "torch's named tuple": (lambda x: (x * 1.0, torch.max(x, dim=0)), ROW, "max"),
    "a named tuple": (lambda x: Pair(torch.relu(x * 1.0), [x.shape[0]]), ROW, "relu"),
    "counted": (lambda x: torch.bincount(x.long()), ROW, "int"),
}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_what_our_ops_cannot_say_stays_as_it_is(name: str) -> None:
    function, x, kept = AROUND[name]

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    made = monograph.fx.optimize(torch.fx.symbolic_trace(Module()), x)
    assert any(kept in name for name in targets(made))
    assert not any("mul" in name for name in targets(made))
    torch.manual_seed(0)
    found = made(x)
    torch.manual_seed(0)
    expected = function(x)
    torch.testing.assert_close(found, expected)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.sort(x)[0] + torch.sort(x)[1], "sort getitem getitem_1 add"),
        (lambda x: torch.topk(x, 2)[1], "topk_default getitem getitem_1"),
        (lambda x: x[torch.argmax(x)], "argmax reshape index_select reshape_1"),
    ],
)
def test_sorting_costs_what_it_did(function: Any, expected: str) -> None:
    made = monograph.fx.optimize(torch.fx.symbolic_trace(lambda x: function(x * 1.0)), ROW)
    assert " ".join(n.name for n in made.graph.nodes if n.op == "call_function") == expected
    torch.testing.assert_close(made(ROW), function(ROW))


@pytest.mark.parametrize("by_name", [False, True])
def test_sizes_may_be_free(by_name: bool) -> None:
    model, batch = Wasteful().eval(), torch.export.Dim("batch")
    traced = torch.fx.symbolic_trace(model, {"scale": 1.0})
    named = {"x": {0: batch}}
    shapes = named if by_name else tuple(named.values())
    made = monograph.fx.optimize(traced, torch.randn(3, 4), dynamic_shapes=shapes)
    for rows in (2, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(made(x), model(x))


def test_data_that_is_written_is_written_by_the_result() -> None:
    class Written(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            before = x * 1.0
            x.data.mul_(2.0)
            self.weight.data.add_(1.0)
            return before, x * self.weight

    def optimized(model: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        return monograph.fx.optimize(model, *examples)

    expected, x = Written(), torch.ones(3)
    results = expected(x)
    traced = torch.fx.symbolic_trace(Written())
    for model in (
        monograph.fx.optimize(traced, torch.ones(3)),
        torch.compile(Written(), backend=optimized),
    ):
        given = torch.ones(3)
        torch.testing.assert_close(model(given), results)
        torch.testing.assert_close(given, x)
        torch.testing.assert_close(model.weight, expected.weight)

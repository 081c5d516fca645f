"""``monograph.explain`` of what ``torch.compile`` returned, and what the logger says of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import monograph
from monograph.errors import InputError

X = torch.linspace(0, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Broken(torch.nn.Module):
    """Two graphs: Python decides between them by what a tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        if x.sum() > 1e9:
            return x
        return self.second(x)


def test_every_graph_is_explained() -> None:
    compiled = torch.compile(Broken(), backend="monograph")
    with torch.no_grad():
        compiled(X)
    explained = monograph.explain(compiled)
    assert [each.role for each in explained.graphs] == ["inference", "inference"]
    assert explained.graphs[0].end is not None
    assert explained.graphs[1].end is None
    page = str(explained)
    assert page.startswith("2 graphs, 1 graph break")
    assert "Broken.forward (graph 2 of 2, inference)" in page
    assert all(len(line) <= 80 for line in page.splitlines() if "test_torch_graphs" not in line)
    assert len(json.loads(json.dumps(explained.as_json()))["graphs"]) == 2


def test_forward_and_backward_are_explained() -> None:
    compiled = torch.compile(torch.nn.Linear(4, 4), backend="monograph")
    compiled(X).sum().backward()
    explained = monograph.explain(compiled)
    assert [each.role for each in explained.graphs] == ["forward", "backward"]
    assert explained.graphs[0].function == "Linear"


def test_a_function_has_its_own_graphs() -> None:
    def double(x: Any) -> Any:
        return x * 2

    def triple(x: Any) -> Any:
        return x * 3

    first = torch.compile(double, backend="monograph")
    second = torch.compile(triple, backend="monograph")
    first(X), second(X)
    assert len(monograph.explain(first).graphs) == 1
    assert "double" in monograph.explain(first).graphs[0].function


class Printing(torch.nn.Module):
    """Breaks before its only graph, which then has no use for the module."""

    def forward(self, x: Any) -> Any:
        torch._dynamo.graph_break()
        return torch.relu(x) * 2


def print_and_double(x: Any) -> Any:
    """Compiled apart from who calls it, for the break in it."""
    torch._dynamo.graph_break()
    return x * 2


def test_a_graph_behind_a_graph_break_is_the_modules() -> None:
    module = Printing()
    for compiled in (
        torch.compile(module, backend="monograph"),
        torch.compile(module.forward, backend="monograph"),
    ):
        compiled(X)
        explained = monograph.explain(compiled)
        assert [each.function for each in explained.graphs] == ["Printing.forward"]
        assert str(explained).startswith("1 graph, 1 graph break")
        assert "begins late" in str(explained)
        torch._dynamo.reset()


def test_graphs_of_functions_that_were_called_are_the_callers() -> None:
    def call(x: Any) -> Any:
        return print_and_double(x) + 1

    compiled = torch.compile(call, backend="monograph")
    compiled(X)
    found = [each.function.rpartition(".")[2] for each in monograph.explain(compiled).graphs]
    assert found == ["print_and_double", "call"]

    def use(x: Any) -> Any:
        return compiled(x)

    use(X)
    with pytest.raises(InputError, match="not a compiled model"):
        monograph.explain(use)


def test_parts_that_are_compiled_are_those_of_the_whole() -> None:
    model = torch.nn.Sequential(Broken(), Broken())
    model[1].compile(backend="monograph")
    with torch.no_grad():
        model(X)
    assert len(monograph.explain(model).graphs) == 2


def test_before_the_first_call_there_is_nothing_to_explain() -> None:
    with pytest.raises(InputError, match="yet"):
        monograph.explain(torch.compile(Broken(), backend="monograph"))
    with pytest.raises(InputError, match="not a compiled model"):
        monograph.explain(Broken())


def test_graph_breaks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(Broken(), backend="monograph")
    with caplog.at_level(logging.INFO, logger="monograph"), torch.no_grad():
        compiled(X)
    messages = [each.getMessage() for each in caplog.records]
    assert any("ends here" in each and "test_torch_graphs.py" in each for each in messages)


def test_what_is_left_to_torch_is_logged_and_explained(caplog: pytest.LogCaptureFixture) -> None:
    @torch.library.custom_op("monograph_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: twice(x) + 1, backend="monograph")
    with caplog.at_level(logging.WARNING, logger="monograph"):
        torch.testing.assert_close(compiled(X), X * 2 + 1)
    assert any("monograph_tests.twice" in each.getMessage() for each in caplog.records)
    assert "monograph_tests.twice" in monograph.explain(compiled).graphs[0].left_to_torch[0]


def test_a_compiled_module_has_its_report(tmp_path: Any) -> None:
    compiled = monograph.compile(torch.nn.Linear(4, 4).eval(), X)
    assert compiled.report is compiled.executable.report
    assert compiled.report.seconds
    loaded = monograph.load(compiled.save(tmp_path / "linear.mono"))
    assert loaded.report.nodes_after == compiled.report.nodes_after
    function = monograph.compile(lambda x: x + x, "f32[4]")
    assert function.report.fallbacks == ()

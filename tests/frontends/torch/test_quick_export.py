"""What is exported in less time is what torch exports, the user's lines included."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx._lazy_graph_module
import torch.fx.proxy

from monograph.frontends.torch.quick_export import quick_export


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) * 2


def described(program: torch.export.ExportedProgram) -> list[tuple[str, str, object]]:
    nodes = program.graph.nodes
    return [(node.name, str(node.target), node.meta.get("stack_trace")) for node in nodes]


def test_the_graph_is_the_same_and_knows_its_lines() -> None:
    model, x = Model(), torch.ones(2, 4)
    expected = described(torch.export.export(model, (x,), strict=False))
    with quick_export():
        found = described(torch.export.export(model, (x,), strict=False))
    assert found == expected
    assert any("test_quick_export.py" in str(trace) for *_, trace in found)


def test_an_exported_program_still_runs() -> None:
    model, x = Model(), torch.ones(2, 4)
    with quick_export():
        program = torch.export.export(model, (x,), strict=False)
    torch.testing.assert_close(program.module()(x), model(x))


def changed_in_torch() -> tuple[Any, bool]:
    proxy: Any = torch.fx.proxy
    return proxy.CapturedTraceback, torch.fx._lazy_graph_module._use_lazy_graph_module_flag


def test_torch_is_as_it_was_when_the_last_export_ends() -> None:
    before = changed_in_torch()
    first, second = quick_export(), quick_export()
    with first:
        second.__enter__()
    during = changed_in_torch()
    assert during[0] is not before[0] and during[1] is True
    second.__exit__(None, None, None)
    assert changed_in_torch() == before

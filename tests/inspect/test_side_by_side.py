"""One model in every IR: what is counted is in the model, and lines meet at their source line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from monograph.inspect.side_by_side import align, table_rows, text_of
from monograph.inspect.side_by_side_page import page_of
from monograph.inspect.subject import subject_from
from monograph.inspect.views import VIEWS, View, views_of
from tests.cli.running import invoke

pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore")

NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 8)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return x + self.second(h)


model = Net().eval()
example_inputs = (torch.ones(2, 8),)
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


@pytest.fixture
def views(net: Path) -> list[View]:
    return views_of(subject_from(f"{net}:model", []).graph, list(VIEWS))


def test_every_ir_has_the_model_and_knows_its_source_lines(views: list[View]) -> None:
    for view in views:
        assert not view.problem and view.lines, view
        places = {line.location.line for line in view.lines if line.location is not None}
        assert {11, 12} <= places, (view.name, places)
        assert view.is_ssa and view.control == 0


@pytest.mark.parametrize("name", ["né.py", "a\\b.py", "two words.py"])
def test_places_are_known_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(NET)
    views = views_of(subject_from(f"{tmp_path / name}:model", []).graph, list(VIEWS))
    for view in views:
        assert not view.problem
        files = {line.location.file for line in view.lines if line.location is not None}
        assert files == {str(tmp_path / name)}, view.name


def test_the_table_is_counted_in_the_model(views: list[View]) -> None:
    rows = dict(table_rows(views))
    by_title = dict(zip([view.title for view in views], rows["typed"], strict=True))
    assert by_title["Monograph"] == "4 of 4" and by_title["FX"] == "0 of 4"
    assert by_title["ONNX"] == "4 of 4"
    assert dict(zip([view.title for view in views], rows["op 1"], strict=True))["ONNX"] == "Gemm 2"


def test_lines_of_one_source_line_meet(views: list[View]) -> None:
    groups = {group.place: group for group in align(views)}
    assert groups["net.py:11"].source() == "h = torch.relu(self.first(x))"
    first = {
        view.name: [line.op for line in own]
        for view, own in zip(views, groups["net.py:11"].lines, strict=True)
    }
    assert first["fx"] == ["F.linear", "torch.relu"]
    assert first["torchscript"] == ["aten::linear", "aten::relu"]
    assert first["monograph"] == ["linear", "relu"] and "dot" in first["hlo"]
    assert sum(len(lines) for group in align(views) for lines in group.lines) == sum(
        len(view.lines) for view in views
    )


class Layers(torch.nn.Module):
    """Three layers that share a table of positions, which XLA computes in front of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(4)[:, None] >= 1
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.where(mask, x, 0.0).softmax(-1)) * mask


def test_places_come_in_the_order_of_the_model_whatever_xla_moves() -> None:
    graph = subject_from(Layers().eval(), [torch.ones(4, 4)]).graph
    views = views_of(graph, ["hlo", "fx", "monograph"])
    groups = align(views)
    assert all(group.lines[2] for group in groups), [group.place for group in groups]
    layers = [group.place[:8] for group in groups if group.place.startswith("layers.")]
    assert layers == sorted(layers) and len(set(layers)) == 3


def test_control_flow_is_counted() -> None:
    import monograph
    from monograph import functional as F

    graph = monograph.trace(
        lambda x: F.cond(F.less(F.sum(x), 0.0), lambda: x * 2.0, lambda: x), "f32[3]"
    )
    for view in views_of(graph, ["fx", "torchscript", "onnx", "stablehlo", "hlo", "monograph"]):
        assert view.control == 1, view
    (relay,) = views_of(graph, ["relay"])
    assert "cannot say" in relay.problem and "cannot say it" in str(table_rows([relay]))


def test_the_terminal_shows_at_most_100_columns(net: Path) -> None:
    result = invoke("inspect", f"{net}:model", "--as", "fx,onnx,hlo,relay,monograph")
    assert result.exit_code == 0, result.exception
    assert max(map(len, result.output.split("\n"))) <= 100
    assert "net.py:12  return x + self.second(h)" in result.output
    rows = [line.split() for line in result.output.split("\n") if line.startswith("op ")]
    assert all(len(row) > 2 for row in rows)  # a half of the table has as many as it needs


def test_the_page_stands_alone(net: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert invoke("inspect", f"{net}:model", "-o", str(page)).exit_code == 0
    text = page.read_text()
    assert "<svg" in text and "aten::linear" in text and "net.py:11" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" not in text
    assert invoke("inspect", f"{net}:model", "-o", str(tmp_path / "page.txt")).exit_code == 1
    assert invoke("inspect", f"{net}:model", "--as", "tosa").exit_code == 1


def test_a_problem_is_printed_where_an_ir_cannot_say_the_model() -> None:
    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).abs()

    graph = subject_from(Spectrum(), [torch.ones(4)]).graph
    views = views_of(graph, ["relay", "fx"])
    assert "Relay: Relay cannot say rfft" in text_of("spectrum", views)
    assert "Relay cannot say rfft" in page_of("spectrum", views)


def test_an_ir_of_known_sizes_says_how_to_fix_them(net: Path) -> None:
    command = ("inspect", f"{net}:model", "--as", "hlo,monograph", "--input", "f32[batch, 8]")
    result = invoke(*command)
    assert result.exit_code == 0, result.exception
    assert "batch is free (fix it: --size batch=8" in " ".join(result.output.split())
    assert "cannot say it" not in invoke(*command, "--size", "batch=3").output

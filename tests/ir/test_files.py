"""Graphs as files: the text, and the weights beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monograph.errors import EvaluationError, InputError, ParseError
from monograph.ir.compare import structurally_equal
from monograph.ir.data import MissingData
from monograph.ir.graph import Graph
from monograph.ir.text import (
    load_graph,
    parse,
    print_graph,
    save_graph,
)
from monograph.ir.types import (
    DTYPES,
    TensorType,
    f32,
    string,
)
from monograph.runtime.atomic import replacing
from tests.ir.probe_ops import Probe, round_trip


def weighted() -> Graph:
    """A graph with weights of every dtype."""
    graph = Graph("weighted")
    generator = np.random.default_rng(0)
    for name, dtype in DTYPES.items():
        array: Any = (
            np.array(["", "a", "naïve"]) if dtype is string else generator.random((3, 5)) * 2
        )
        graph.add_weight(f"w.{name}", array, dtype)
    graph.add_weight("scalar", np.float32(1.5))
    graph.add_weight("empty", np.zeros((0, 3), np.complex128))
    return graph


def arrays(graph: Graph) -> dict[str, Any]:
    return {node.op.label: node.op.data.array() for node in graph.nodes}  # type: ignore[attr-defined]


def test_weights_print_by_digest_and_parse_without_data() -> None:
    graph = weighted()
    again = round_trip(graph)
    assert all(isinstance(node.op.data, MissingData) for node in again.nodes)
    with pytest.raises(EvaluationError, match="this weight's data was not loaded"):
        again.nodes[0].op.data.array()


def test_parse_takes_weights() -> None:
    graph = weighted()
    again = parse(print_graph(graph), weights=arrays(graph))
    for name, array in arrays(again).items():
        assert np.array_equal(array.view(), arrays(graph)[name]), name


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2), np.float64), "the given type is not that of the weight w"),
        (np.ones((2, 2), np.float32), "the given contents are not that of the weight w"),
    ],
)
def test_other_weights_than_the_text_names_are_refused(array: Any, message: str) -> None:
    graph = Graph()
    graph.add_weight("w", np.zeros((2, 2), np.float32))
    with pytest.raises(ParseError, match=message):
        parse(print_graph(graph), weights={"w": array})


def test_save_and_load(tmp_path: Path) -> None:
    graph = weighted()
    path = save_graph(graph, tmp_path / "model.ir")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.ir", "model.safetensors"]
    again = load_graph(path)
    assert structurally_equal(graph, again, names=True)
    for name, array in arrays(again).items():
        expected = arrays(graph)[name]
        assert array.dtype == expected.dtype
        assert array.tolist() == expected.tolist()
        assert not array.flags.writeable
        assert array.flags.aligned


def test_weights_are_read_when_asked_for(tmp_path: Path) -> None:
    graph = Graph()
    graph.add_weight("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    path = save_graph(graph, tmp_path / "model.ir")
    weights = path.with_suffix(".safetensors")
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    damaged = load_graph(path)
    with pytest.raises(EvaluationError, match="the weights file holds other contents for w"):
        damaged.nodes[0].op.data.array()


def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    graph = Graph()
    graph.add_weight("w", np.arange(12, dtype=np.float32))
    array = load_graph(save_graph(graph, tmp_path / "model.ir")).nodes[0].op.data.array()
    while isinstance(array.base, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    assert isinstance(array, np.memmap)


def test_a_graph_can_be_saved_over_itself(tmp_path: Path) -> None:
    path = save_graph(weighted(), tmp_path / "model.ir")
    save_graph(load_graph(path), path)
    assert arrays(load_graph(path)).keys() == arrays(weighted()).keys()


def test_without_its_weights_file_a_graph_loads_without_data(tmp_path: Path) -> None:
    path = save_graph(weighted(), tmp_path / "model.ir")
    path.with_suffix(".safetensors").unlink()
    again = load_graph(path)
    assert all(isinstance(node.op.data, MissingData) for node in again.nodes)
    save_graph(again, path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.ir"]


def test_weights_of_one_name_and_other_contents_stay_apart(tmp_path: Path) -> None:
    graph = Graph()
    for label, value in (("w", 1.0), ("w", 2.0), ("w", 1.0), ("__metadata__", 3.0)):
        graph.add_weight(label, np.full((2,), value, np.float32))
    again = load_graph(save_graph(graph, tmp_path / "model.ir"))
    assert [node.op.data.array()[0] for node in again.nodes] == [1.0, 2.0, 1.0, 3.0]


def _drop_weight(path: Path) -> None:
    other = Graph()
    other.add_weight("other", np.zeros(3, np.float32))
    save_graph(other, path.with_name("other.ir"))
    path.with_name("other.safetensors").replace(path.with_suffix(".safetensors"))


def _retype_weight(path: Path) -> None:
    other = Graph()
    other.add_weight("w", np.zeros(3, np.float64))
    save_graph(other, path.with_name("other.ir"))
    path.with_name("other.safetensors").replace(path.with_suffix(".safetensors"))


def _scramble(path: Path) -> None:
    path.with_suffix(".safetensors").write_bytes(b"not a weights file")


def _link_away(path: Path) -> None:
    outside = path.parent.parent / "outside.safetensors"
    path.with_suffix(".safetensors").replace(outside)
    path.with_suffix(".safetensors").symlink_to(outside)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_drop_weight, "the weights file has no weight w"),
        (_retype_weight, "the weights file has another type for w"),
        (_scramble, "is not a weights file"),
        (_link_away, "leads out of its folder"),
    ],
)
def test_a_wrong_weights_file_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    graph = Graph()
    graph.add_weight("w", np.zeros(3, np.float32))
    path = save_graph(graph, folder / "model.ir")
    damage(path)
    with pytest.raises(ParseError, match=message):
        load_graph(path)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model.ir"
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        load_graph(path)
    path.write_bytes(b"graph \xff")
    with pytest.raises(ParseError) as caught:
        load_graph(path)
    assert str(caught.value) == (
        f"the file is not text\n  expected UTF-8\n  found    the byte 0xff at offset 6\n"
        f"  at       {path}"
    )
    with pytest.raises(InputError, match="is a name for weights"):
        save_graph(Graph(), tmp_path / "model.safetensors")


def test_errors_in_files_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.ir"
    path.write_text("graph @g() -> () {\n  %x = nothing()\n}")
    with pytest.raises(ParseError) as caught:
        load_graph(path)
    assert caught.value.where == f"{path}:2:8\n  %x = nothing()\n       ^"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_written_to_and_a_link_stays_one(tmp_path: Path) -> None:
    graph = Graph()
    graph.create(Probe(count=1), [graph.add_input("x", TensorType(f32, (4,)))])
    pipe, link = tmp_path / "pipe", tmp_path / "link.ir"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save_graph(graph, pipe)
    with replacing(pipe, 0o644) as file:
        file.write(b"and more")
    text = os.read(reading, 1 << 16).decode()
    os.close(reading)
    assert text.startswith("graph @") and text.endswith("and more") and pipe.is_fifo()

    (tmp_path / "real.ir").write_text("old")
    link.symlink_to(tmp_path / "real.ir")
    save_graph(graph, link)
    assert link.is_symlink() and (tmp_path / "real.ir").read_text().startswith("graph @")


def test_an_unwritable_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    graph = Graph()
    graph.create(Probe(count=1), [graph.add_input("x", TensorType(f32, (4,)))])
    target = tmp_path / "taken.ir"
    target.mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        save_graph(graph, target)
    assert [file.name for file in tmp_path.iterdir()] == ["taken.ir"]

"""The tour: every chapter runs, fits 80 columns, and its figures are what they must be."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from rich.console import Console

import monograph
from monograph.inspect.structure import epilogues, fusable_chains, op_counts, skip_connections
from monograph.inspect.tour import examples, native, phases
from monograph.inspect.tour.page import Page
from monograph.ir.interpret import interpret

CHAPTERS: list[Callable[[Page], None]] = [
    phases.build,
    phases.evaluate,
    phases.backward,
    phases.optimise,
    phases.compare,
    examples.show_wasteful,
    examples.show_gelu,
    examples.show_residual,
]


def show_native(page: Page) -> None:
    """The chapter as the short tour shows it, without waiting for another compiler."""
    native.show_native(page, inductor=False)


CHAPTERS.append(show_native)


def printed(chapter: Callable[[Page], None]) -> str:
    stream = io.StringIO()
    chapter(Page(Console(file=stream, width=80, highlight=False)))
    return stream.getvalue()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_a_chapter_asks_and_answers_within_80_columns(chapter: Callable[[Page], None]) -> None:
    text = printed(chapter)
    assert "Q  " in text
    assert "A  " in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_cycle_is_explained() -> None:
    assert "cycle" in printed(phases.build)


def test_evaluation_is_shown_step_by_step() -> None:
    text = printed(phases.evaluate)
    assert "= 28.0" in text


def test_gradients_agree_with_finite_differences() -> None:
    assert "e-1" in printed(phases.backward)


def test_every_order_of_passes_gives_the_same_result() -> None:
    text = printed(phases.optimise)
    assert "NO" not in text
    assert text.count("yes") == 4


def test_the_wasteful_function_shrinks_pass_by_pass() -> None:
    graph = monograph.trace(examples.wasteful, "f32[8]")
    counts = [len(graph)]
    for name in ("fold_constants", "cse", "simplify", "dce"):
        graph = monograph.optimize(graph, passes=name)
        counts.append(len(graph))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 7  # two constants, relu, multiply, add, relu, add
    assert "equal bit for bit" in printed(examples.show_wasteful)


def test_gelu_is_found_in_all_eight_orders() -> None:
    graphs = examples.gelu_orders()
    assert len({str(graph) for graph in graphs}) == 8
    for graph in graphs:
        result = monograph.optimize(graph)
        assert [node.op.name for node in result.nodes] == ["gelu"]
        x = [np.linspace(-3, 3, 16, dtype=np.float32)]
        np.testing.assert_allclose(interpret(result, x)[0], interpret(graph, x)[0], atol=1e-6)
    assert "8 of 8 spellings" in printed(examples.show_gelu)


def test_the_skip_connection_is_found() -> None:
    graph = monograph.trace(examples._residual_block, "f32[batch, 64]")
    (skip,) = skip_connections(graph)
    assert skip.source is graph.inputs[0]
    assert skip.join.op.name == "add"
    assert [node.op.name for node in skip.path] == ["linear", "relu", "linear"]
    assert op_counts(graph) == {
        "input": 1, "weight": 4, "linear": 2, "relu": 1, "add": 1, "output": 1,
    }  # fmt: skip
    assert [(a.op.name, b.op.name) for a, b in epilogues(graph)] == [
        ("linear", "relu"),
        ("linear", "add"),
    ]


def test_the_compiled_block_is_right_and_needs_no_interpreter() -> None:
    text = printed(show_native)
    assert "0 nodes" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("monograph ")]
    assert float(line.split()[-1]) < 1e-6


def test_the_block_is_the_same_by_hand() -> None:
    weights = native.make_weights()
    graph = monograph.trace(lambda x: native.block(x, weights), "f32[64, 128]")
    x = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
    by_hand = native.numpy_block(x, weights)
    np.testing.assert_allclose(interpret(graph, [x])[0], by_hand, rtol=1e-4, atol=1e-5)


def test_chains_of_elementwise_nodes_are_found() -> None:
    def chain(x):  # type: ignore[no-untyped-def]
        kept = monograph.functional.exp(x)
        return monograph.functional.relu(kept * 2.0 + 1.0) + kept

    graph = monograph.trace(chain, "f32[8]")
    (only,) = fusable_chains(graph)
    assert [node.op.name for node in only] == ["multiply", "add", "relu", "add"]

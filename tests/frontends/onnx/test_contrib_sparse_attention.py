"""``SparseAttention`` of ``com.microsoft`` against ONNX Runtime, which writes caches in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import one_node

HEADS, SHARED, DEPTH, BLOCK, LONGEST = 4, 2, 16, 16, 64
ROWS = np.array([[0, 1, 3, 6, 10], [0, 1, 3, 6, 9]], np.int32)
COLUMNS = np.array([[0, 0, 1, 0, 1, 2, 0, 1, 2, 3], [0, 0, 1, 0, 1, 2, 0, 2, 3, -1]], np.int32)


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def operands(queries: int, totals: list[int], rotary: bool) -> list[Any]:
    batch = len(totals)
    angles = [np.cos(draw(LONGEST, DEPTH // 2)), np.sin(draw(LONGEST, DEPTH // 2))]
    return [
        draw(batch, queries, HEADS * DEPTH),
        *(draw(batch, queries, SHARED * DEPTH, seed=seed) for seed in range(2)),
        *(draw(batch, SHARED, LONGEST, DEPTH, seed=seed) for seed in range(2)),
        ROWS,
        COLUMNS,
        np.array([max(totals)], np.int32),
        np.array(totals, np.int32),
        *(angles if rotary else []),
    ]


def model_of(given: list[Any], *, rotary: bool = False, known: bool = True) -> Any:
    return one_node(
        "SparseAttention", given, 3, domain="com.microsoft", constant=(5, 6, *[7] * known),
        num_heads=HEADS, kv_num_heads=SHARED, sparse_block_size=BLOCK, do_rotary=int(rotary),
    )  # fmt: skip


def run_in_place(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """ONNX Runtime wants the caches that come and go to be the same memory."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array.copy())
        for name, array in feeds.items()
    }
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", values["x3"])
    binding.bind_ortvalue_output("y2", values["x4"])
    session.run_with_iobinding(binding)
    return [each.numpy().copy() for each in binding.get_outputs()]


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("queries", "total"), [(40, 40), (1, 37), (1, 64)])
def test_prompts_and_steps(queries: int, total: int, known: bool, rotary: bool) -> None:
    given = operands(queries, [total, total], rotary)
    model, feeds = model_of(given, rotary=rotary, known=known)
    expected, found = run_in_place(model, feeds), interpret(from_onnx(model), feeds)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for got, want in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(got[:, :, :total], want[:, :, :total], rtol=1e-4, atol=1e-5)


def test_examples_of_different_lengths_are_as_if_alone() -> None:
    """ONNX Runtime itself gives an example another result beside a longer one."""
    totals = [37, 20]
    model, feeds = model_of(operands(1, totals, rotary=False))
    together = interpret(from_onnx(model), feeds)[0]
    for number, total in enumerate(totals):
        alone = [each[number : number + 1] for each in operands(1, totals, rotary=False)[:5]]
        lengths = [np.array([total], np.int32)] * 2
        model, feeds = model_of([*alone, ROWS, COLUMNS, *lengths])
        expected = run_in_place(model, feeds)[0]
        np.testing.assert_allclose(together[number], expected[0], rtol=1e-4, atol=1e-5)

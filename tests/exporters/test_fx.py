"""Graphs as torch programs: parameters, names, free sizes, control flow, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.exporters.fx import to_fx, to_torchscript
from monograph.frontends.torch import from_torch
from monograph.ir.graph import Graph

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def symbolic() -> Graph:
    def model(x: Any, y: Any) -> Any:
        joined = F.concat([x, x], 0)
        doubled = F.reshape(joined, (x.shape[0], 2 * x.shape[1]))
        return doubled + y[: x.shape[0]], F.sum(doubled, 0)

    return monograph.trace(model, "f32[batch, n]", "f32[2*batch, 2*n]")


def test_a_module_goes_to_our_graph_and_back_with_its_parameters() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    again = to_fx(from_torch(model, x))
    torch.testing.assert_close(again(x), model(x))
    assert again.state_dict().keys() == model.state_dict().keys()
    shared = to_fx(from_torch(model, x), dict(model.named_parameters()))
    assert all(each is model.get_parameter(name) for name, each in shared.named_parameters())
    assert any(node.target is torch.nn.functional.linear for node in again.graph.nodes)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 2), (5, 7)])
@pytest.mark.parametrize("write", [to_fx, to_torchscript])
def test_sizes_stay_free(write: Any, sizes: tuple[int, int]) -> None:
    graph = symbolic()
    b, n = sizes
    arrays = [np.random.rand(b, n).astype("f4"), np.random.rand(2 * b, 2 * n).astype("f4")]
    expected = monograph.interpret(graph, arrays)
    got = write(graph)(*map(torch.from_numpy, arrays))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, 1e-5)


@pytest.mark.parametrize(("dtype", "numpy"), [("u8", "u1"), ("i8", "i1"), ("i32", "i4")])
def test_integers_are_pooled_through_floats(dtype: str, numpy: str) -> None:
    graph = monograph.trace(lambda x: F.max_pool(x, 3, 2, 1), f"{dtype}[1, 2, 7]")
    limits = np.iinfo(numpy)
    x = np.linspace(limits.min, limits.max, 14).astype(limits.dtype).reshape(1, 2, 7)
    got = to_fx(graph)(torch.from_numpy(x))
    np.testing.assert_array_equal(got.numpy(), monograph.interpret(graph, [x])[0])


def test_torchscript_is_saved_and_loaded(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return F.while_loop(lambda c: F.less(F.sum(c), 100.0), lambda c: c * 2.0, F.exp(x))

    graph = monograph.trace(model, "f32[3]")
    x = np.array([0.1, 0.2, 0.3], np.float32)
    to_torchscript(graph).save(str(tmp_path / "model.pt"))
    loaded = torch.jit.load(str(tmp_path / "model.pt"))
    np.testing.assert_allclose(
        loaded(torch.from_numpy(x)).numpy(), monograph.interpret(graph, [x])[0], 1e-6
    )


def test_what_torch_lacks_is_named_with_its_place() -> None:
    graph = monograph.trace(lambda x: F.exp(F.cast(x, "i4")) if 0 else F.cast(x, "i4"), "f32[4]")
    with pytest.raises(UnsupportedError) as caught:
        to_fx(graph)
    (problem,) = caught.value.problems
    assert problem.op == "cast" and "i4" in problem.reason and "test_fx.py" in problem.where

"""What is compiled has the weights that the model had then, whatever becomes of the model's."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph

torch = pytest.importorskip("torch")

IDS = torch.arange(32)


class Model(torch.nn.Module):  # type: ignore[misc]
    """Weights of every kind: a table, packed matrices, biases, a norm, a buffer, tied ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 64)
        self.wide = torch.nn.Linear(64, 96)
        self.norm = torch.nn.LayerNorm(96)
        self.narrow = torch.nn.Linear(96, 64)
        self.head = torch.nn.Linear(64, 50)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 50))

    def forward(self, ids: Any) -> Any:
        hidden = torch.relu(self.norm(self.wide(self.embed(ids))))
        return self.head(self.narrow(hidden)) * self.scale


@pytest.fixture
def model() -> Iterator[Any]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield Model().eval()


def edit_in_place(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.mul_(1.5).add_(0.25)


def write_to_data(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data[...] = 0.5


def replace_data(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.zero_()
        tensor.data = torch.ones_like(tensor)


def load_another(model: Any) -> None:
    model.load_state_dict({name: t + 1 for name, t in model.state_dict().items()})


def train(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with torch.enable_grad():
        model(IDS).square().mean().backward()
    optimizer.step()
    model.scale += 1


def narrow(model: Any) -> None:
    edit_in_place(model)
    model.half()


def write_through_numpy(model: Any) -> None:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.detach().numpy()[...] = -1.0


EDITS: list[Callable[[Any], None]] = [
    edit_in_place,
    write_to_data,
    replace_data,
    load_another,
    train,
    narrow,
    write_through_numpy,
]


@pytest.mark.parametrize("called", [True, False], ids=["called before", "not called before"])
@pytest.mark.parametrize("edit", EDITS)
def test_edits_after_compiling_do_not_show(
    model: Any, edit: Callable[[Any], None], called: bool, tmp_path: Path
) -> None:
    expected = model(IDS)
    compiled = monograph.compile(model, IDS, cache=False)
    if called:
        compiled(IDS)
    edit(model)
    got = compiled(IDS)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    loaded = monograph.load(compiled.save(tmp_path / "model.mono"))
    assert torch.equal(loaded(IDS), got)


def test_a_program_from_the_cache_is_a_snapshot_too(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MONOGRAPH_VERIFY", "0")  # what is verified is compiled afresh
    monograph.compile(model, IDS, cache=True)
    edit_in_place(model)
    expected = model(IDS)
    compiled = monograph.compile(model, IDS, cache=True)
    assert compiled.executable.report.cache == "hit"
    write_to_data(model)
    torch.testing.assert_close(compiled(IDS), expected, rtol=1e-4, atol=1e-4)


def test_kept_weights_are_those_that_were_compiled(model: Any) -> None:
    expected = model(IDS).numpy()
    compiled = monograph.compile(model, IDS, cache=False, keep_weights=True)
    edit_in_place(model)
    executable = compiled.executable
    np.testing.assert_allclose(executable.run([IDS.numpy()])[0], expected, rtol=1e-4, atol=1e-4)
    for graph in (executable.graph, executable.lowered):
        (got,) = monograph.interpret(graph, [IDS.numpy()])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_batch_norm_that_is_folded_is_a_snapshot() -> None:
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16)
    norm.running_mean.uniform_(-1, 1)
    model, x = torch.nn.Sequential(conv, norm).eval(), torch.randn(2, 8, 12, 12)
    expected = model(x).detach()
    compiled = monograph.compile(model, x, cache=False)
    norm.running_mean.zero_()
    norm.weight.data.fill_(3)
    conv.bias.data.fill_(5)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)


def test_the_module_may_be_deleted(model: Any) -> None:
    expected = model(IDS)
    compiled = monograph.compile(model, IDS, cache=False)
    gone = weakref.ref(model.embed.weight)
    for each in list(model.children()):
        for name in list(each._parameters):
            delattr(each, name)
    gc.collect()
    assert gone() is None
    torch.testing.assert_close(compiled(IDS), expected, rtol=1e-4, atol=1e-4)


def test_no_weight_is_held_twice(model: Any) -> None:
    compiled = monograph.compile(model, IDS, cache=False)
    native = compiled.executable.native
    packed = sum(panel.nbytes for panel in native.prepared().values())
    read = sum(array.nbytes for array in native.weights.values())
    table = model.embed.weight.nbytes  # which is packed for the head, and read by the embedding
    given = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    assert packed + read <= 1.25 * (given + table)
    held = [data for data in native.program.weights if _is_held(data)]
    arrays = {data.array().ctypes.data for data in held}
    assert arrays == {array.ctypes.data for array in native.weights.values()}


def _is_held(data: Any) -> bool:
    try:
        data.array()
    except monograph.errors.EvaluationError:
        return False
    return True


def test_a_function_that_closes_over_tensors_is_a_snapshot() -> None:
    bias, table = torch.randn(64), torch.randn(100, 64)
    ids = torch.arange(7)
    expected = table[ids] + bias
    compiled = monograph.compile(lambda i: table[i] + bias, ids, cache=False)
    bias.zero_()
    table.zero_()
    assert torch.equal(compiled(ids), expected)


def test_a_traced_function_that_closes_over_arrays_is_a_snapshot(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(64, 96)).astype(np.float32)
    bias = generator.normal(size=96).astype(np.float32)
    x = generator.normal(size=(32, 64)).astype(np.float32)
    expected = x @ matrix + bias
    compiled = monograph.compile(lambda x: x @ matrix + bias, "f32[32, 64]", cache=False)
    matrix[...] = 0
    bias[...] = 0
    got = compiled(x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    loaded = monograph.load(compiled.save(tmp_path / "function.mono"))
    np.testing.assert_array_equal(loaded(x), got)


def test_what_calls_complete_is_a_snapshot() -> None:
    offsets = np.int64([[10, 20]])
    compiled = monograph.compile(lambda x: F.nonzero(x) + offsets, "f32[8]", cache=False)
    assert compiled.executable.stage is not None
    offsets[...] = 0
    got = compiled(np.float32([0, 1, 0, 0, 2, 0, 0, 0]))
    np.testing.assert_array_equal(got, [[11, 21], [14, 24]])


def graph_with(matrix: Any, bias: Any, other: Any) -> Graph:
    graph = Graph("main")
    x = graph.add_input("x", "f32[32, 64]")
    with graph.as_current():
        y = x @ graph.add_weight("matrix", matrix) + graph.add_weight("bias", bias)
        graph.set_outputs([F.relu(y) + graph.add_weight("other", other)])
    return graph


def test_a_graph_that_is_compiled_again_has_its_new_weights() -> None:
    """Equal weights, or weights of zeros, are no longer so: nothing is remembered of them."""
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(64, 96)).astype(np.float32)
    bias, other = np.zeros(96, np.float32), np.zeros(96, np.float32)
    x = generator.normal(size=(32, 64)).astype(np.float32)
    graph = graph_with(matrix, bias, other)
    first = compile_graph(graph, Options(cache=False))
    before = np.maximum(x @ matrix, 0)
    bias[...] = 1
    other[...] = 2
    matrix *= -1
    second = compile_graph(graph, Options(cache=False))
    after = np.maximum(x @ matrix + 1, 0) + 2
    np.testing.assert_allclose(first.run([x])[0], before, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second.run([x])[0], after, rtol=1e-4, atol=1e-4)
    (interpreted,) = monograph.interpret(monograph.optimize(graph), [x])
    np.testing.assert_allclose(interpreted, after, rtol=1e-4, atol=1e-4)
    (given,) = monograph.interpret(graph, [x])
    np.testing.assert_allclose(given, after, rtol=1e-4, atol=1e-4)


def test_a_file_of_weights_may_be_overwritten(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    generator = np.random.default_rng(0)
    arrays = {
        "table": generator.normal(size=(40, 64)).astype(np.float32),
        "matrix": generator.normal(size=(64, 96)).astype(np.float32),
        "bias": generator.normal(size=96).astype(np.float32),
    }
    graph = onnx.parser.parse_graph(
        "g (int64[8] ids) => (float[8, 96] y) "
        "{ x = Gather(table, ids) z = MatMul(x, matrix) y = Add(z, bias) }"
    )
    graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    ids = np.arange(8)
    expected = arrays["table"][ids] @ arrays["matrix"] + arrays["bias"]
    compiled = monograph.compile(path, cache=False)
    with open(tmp_path / "weights.bin", "r+b") as file:
        size = file.seek(0, 2)
        file.seek(0)
        file.write(bytes(size))
    np.testing.assert_allclose(compiled(ids)[0], expected, rtol=1e-4, atol=1e-4)
    (tmp_path / "weights.bin").write_bytes(b"")
    np.testing.assert_allclose(compiled(ids)[0], expected, rtol=1e-4, atol=1e-4)


class Counter(torch.nn.Module):  # type: ignore[misc]
    """A module that counts its calls and keeps what came last."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(4, 3))

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.last.copy_(torch.cat([self.last[1:], x]))
        return self.last.sum(0) * self.count


def test_state_is_the_program_s_own() -> None:
    model = Counter().eval()
    reference = copy.deepcopy(model)
    compiled = monograph.compile(model, torch.ones(1, 3), cache=False)
    for k in range(3):
        x = torch.full((1, 3), float(k))
        assert torch.equal(compiled(x), reference(x))
        model.last.fill_(7)
        model.count.fill_(9)
    assert torch.equal(model.last, torch.full((4, 3), 7.0))


def test_torch_compile_follows_the_module(model: Any) -> None:
    """Dynamo passes parameters to the program: it is no snapshot, and never was a mixture."""
    compiled = torch.compile(model, backend="monograph")
    for _ in range(2):
        torch.testing.assert_close(compiled(IDS), model(IDS), rtol=1e-4, atol=1e-4)
        edit_in_place(model)

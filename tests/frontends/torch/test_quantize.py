"""What torch's quantization exports gives the results of eager, bit for bit."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from torch import Tensor, nn

import monograph
from monograph.errors import UnsupportedError

OPS = torch.ops.quantized_decomposed


class Quantized(nn.Module):
    """A layer between quantized numbers, and its input quantized by channel."""

    def __init__(self, points: Tensor) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Buffer(
            torch.randint(-127, 128, (48, 64), generator=generator).to(torch.int8)
        )
        self.scales = nn.Buffer(torch.rand(48, generator=generator) / 100 + 0.001)
        self.points = nn.Buffer(points)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        stored = OPS.quantize_per_tensor(x, 0.02, 10, -128, 127, torch.int8)
        real = OPS.dequantize_per_tensor(stored, 0.02, 10, -128, 127, torch.int8)
        parameters = self.scales, self.points, 0, -128, 127, torch.int8
        product = real @ OPS.dequantize_per_channel(self.weight, *parameters).T
        columns = self.scales, self.points, 1, -128, 127, torch.int8
        result = OPS.quantize_per_tensor(product, 0.1, 3, 0, 255, torch.uint8)
        return result, OPS.quantize_per_channel(x[:, :48], *columns)


@pytest.mark.parametrize("points", [torch.zeros(48, dtype=torch.int64), torch.arange(48) - 20])
def test_a_quantized_layer(points: Tensor) -> None:
    x = torch.randn(20, 64, generator=torch.Generator().manual_seed(1))
    module = Quantized(points)
    compiled = monograph.compile(module, x)
    for got, expected in zip(compiled(x), module(x), strict=True):
        assert got.dtype is expected.dtype
        assert torch.equal(got, expected)


class Network(nn.Module):
    """A convolutional net as PT2E leaves it: a quantize and a dequantize around every layer."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(6)
        for name, shape in (("first", (16, 4, 3, 3)), ("last", (10, 16))):
            stored = torch.randint(-127, 128, shape, generator=generator).to(torch.int8)
            scales = torch.rand(shape[0], generator=generator) / 200 + 0.001
            setattr(self, name, nn.Buffer(stored))
            setattr(self, f"{name}_scales", nn.Buffer(scales))

    def weight(self, name: str) -> Tensor:
        stored, scales = getattr(self, name), getattr(self, f"{name}_scales")
        none = torch.zeros(len(scales), dtype=torch.int64)
        return OPS.dequantize_per_channel(stored, scales, none, 0, -127, 127, torch.int8)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        def pass_through(x: Tensor, scale: float, point: int) -> Tensor:
            how = scale, point, -128, 127, torch.int8
            return OPS.dequantize_per_tensor(OPS.quantize_per_tensor(x, *how), *how)  # type: ignore[no-any-return]

        x = pass_through(x, 0.03, 5)
        x = torch.relu(nn.functional.conv2d(x, self.weight("first"), padding=1))
        x = pass_through(x, 0.05, -128)
        x = pass_through(nn.functional.max_pool2d(x, 2), 0.05, -128)
        x = pass_through(x.mean((2, 3)), 0.05, -128)
        return pass_through(nn.functional.linear(x, self.weight("last")), 0.1, 3)


def test_an_exported_net_multiplies_integers() -> None:
    model, x = Network(), torch.randn(2, 4, 12, 12, generator=torch.Generator().manual_seed(7))
    compiled = monograph.compile(torch.export.export(model, (x,)), strict=True)
    steps = (compiled(x) - model(x)) / 0.1
    assert steps.abs().max() < 1.5 and (steps.abs() > 0.5).float().mean() < 0.1
    assert any("integer_conv" in kernel.name for kernel in compiled.report.kernels)


class Dynamic(nn.Module):
    """Activations quantized in each call, as PT2E's dynamic quantizers leave it."""

    def __init__(self, symmetric: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.choose = OPS.choose_qparams_symmetric if symmetric else OPS.choose_qparams
        self.range = (-127, 127, 2**-12, dtype) if symmetric else (-128, 127, 2**-12, dtype)
        if dtype is torch.uint8:
            self.range = 0, 255, 2**-12, dtype
        generator = torch.Generator().manual_seed(2)
        stored = torch.randint(-127, 128, (24, 32), generator=generator).to(torch.int8)
        self.weight, self.scales = nn.Buffer(stored), nn.Buffer(torch.full((24,), 2.0**-8))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        scale, point = self.choose(x, *self.range)
        low, high, _, dtype = self.range
        stored = OPS.quantize_per_tensor(x, scale, point, low, high, dtype)
        real = OPS.dequantize_per_tensor(stored, scale, point, low, high, dtype)
        none = torch.zeros(24, dtype=torch.int64)
        weights = self.scales, none, 0, -127, 127, torch.int8
        weight = OPS.dequantize_per_channel(self.weight, *weights)
        return scale, point, stored, nn.functional.linear(real, weight)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("offset", [0.0, 5.0, -5.0])
def test_ranges_that_are_chosen_in_each_call(
    symmetric: bool, dtype: torch.dtype, offset: float
) -> None:
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(3)) + offset
    module = Dynamic(symmetric, dtype)
    compiled = monograph.compile(module, x)
    for each in (x, x * 0, x / 7):
        *got, product = compiled(each)
        *expected, reference = module(each)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.dtype is theirs.dtype and torch.equal(ours, theirs)
        torch.testing.assert_close(product, reference, rtol=1e-5, atol=1e-4)


class Rows(nn.Module):
    """Activations quantized by row in each call, weights of four bits by group."""

    def __init__(self, symmetric: bool, points: bool) -> None:
        super().__init__()
        self.symmetric = symmetric
        generator = torch.Generator().manual_seed(4)
        self.weight = nn.Buffer(torch.randint(-8, 8, (24, 64), generator=generator).to(torch.int8))
        self.scales = nn.Buffer(torch.rand(24, 4, generator=generator) / 8 + 0.01)
        self.points = (
            nn.Buffer(torch.randint(-3, 3, (24, 4), generator=generator)) if points else None
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.symmetric:
            scale, point = OPS.choose_qparams_per_token(x, torch.int8)
        else:
            scale, point = OPS.choose_qparams_per_token_asymmetric(x, torch.int8)
        stored = OPS.quantize_per_token(x, scale, point, -128, 127, torch.int8)
        real = OPS.dequantize_per_token(stored, scale, point, -128, 127, torch.int8, torch.float32)
        how = -8, 7, torch.int8, 16
        weight = OPS.dequantize_per_channel_group(
            self.weight, self.scales, self.points, *how, torch.float32
        )
        again = OPS.quantize_per_channel_group(
            weight, self.scales, torch.zeros(24, 4, dtype=torch.int32), *how
        )
        return stored, again, nn.functional.linear(OPS.convert_element_type(real, x.dtype), weight)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("points", [False, True])
def test_rows_and_groups(symmetric: bool, points: bool) -> None:
    module = Rows(symmetric, points)
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(5)) * 3
    x[0, 1] = 0
    program = torch.export.export(module, (x,))
    (stored, again, product), expected = monograph.compile(program)(x), module(x)
    assert stored.dtype is torch.int8
    assert torch.equal(stored, expected[0]) and torch.equal(again, expected[1])
    torch.testing.assert_close(product, expected[2], rtol=1e-5, atol=1e-4)


def test_modules_with_packed_weights_are_refused_with_advice() -> None:
    module = nn.Sequential(nn.Linear(8, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)
        with pytest.raises(UnsupportedError) as raised:
            monograph.compile(packed, torch.ones(2, 8))
    assert "monograph.quantize" in str(raised.value.hint)


class Products(nn.Module):
    """Products of bytes as torch names them."""

    def forward(self, a: Tensor, b: Tensor, x: Tensor, scales: Tensor) -> tuple[Tensor, ...]:
        weight = b.T.contiguous()
        return torch._int_mm(a, b), torch.ops.aten._weight_int8pack_mm(x, weight, scales)


def test_products_of_bytes() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-128, 128, shape, generator=generator).to(torch.int8)
        for shape in ((33, 64), (64, 40))
    )
    x = torch.randn(5, 64, generator=generator).bfloat16()
    scales = torch.rand(40, generator=generator).bfloat16()
    module = Products()
    summed, scaled = monograph.compile(module, a, b, x, scales)(a, b, x, scales)
    expected, real = module(a, b, x, scales)
    assert torch.equal(summed, expected)
    torch.testing.assert_close(scaled, real, rtol=2**-7, atol=1e-2)


class StoredWeight(torch.Tensor):
    """Bytes and scales that call themselves one tensor of floats, as torchao's weights do."""

    @staticmethod
    def __new__(cls, stored: Tensor, scale: Tensor) -> StoredWeight:
        return torch.Tensor._make_wrapper_subclass(cls, stored.shape, dtype=scale.dtype)  # type: ignore[attr-defined,no-any-return]  # torch's protocol

    def __init__(self, stored: Tensor, scale: Tensor) -> None:
        self.stored, self.scale = stored, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["stored", "scale"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, Tensor], context: None, size: Any, stride: Any
    ) -> StoredWeight:
        return cls(inner["stored"], inner["scale"])

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].stored.detach(), args[0].scale.detach())
        plain = [x.stored.float() * x.scale if isinstance(x, cls) else x for x in args]
        return function(*plain, **(kwargs or {}))


@pytest.mark.parametrize("exported", [False, True])
def test_weights_that_are_tensor_subclasses_are_read_as_what_they_hold(exported: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5)).eval()
    for layer in (model[0], model[2]):
        rows = layer.weight.shape[0]
        stored = torch.randint(-127, 128, layer.weight.shape, dtype=torch.int8)
        weight = StoredWeight(stored, torch.rand(rows, 1) / 100)
        layer.weight = nn.Parameter(weight, requires_grad=False)
    x = torch.randn(3, 64)
    expected = model(x)
    source = torch.export.export(model, (x,)) if exported else model
    graph = monograph.from_torch(source, *(() if exported else (x,)))
    assert [type(layer.weight.data) for layer in (model[0], model[2])] == [StoredWeight] * 2
    weights = [str(node.result.type) for node in graph.nodes if node.op.name == "weight"]
    assert "i8[48, 64]" in weights
    (got,) = monograph.compile(graph)(x.numpy())
    torch.testing.assert_close(torch.from_numpy(got), expected)


def test_a_model_that_refuses_another_mode_is_read_in_its_own() -> None:
    class Exported(nn.Linear):
        def train(self, mode: bool = True) -> Exported:
            raise NotImplementedError("Calling train() or eval() is not supported")

    model, x = Exported(8, 3), torch.ones(2, 8)
    (got,) = monograph.compile(monograph.from_torch(model, x))(x.numpy())
    torch.testing.assert_close(torch.from_numpy(got), model(x).detach())

"""Control flow, custom ops and sizes: the parts of a torch program that are not plain ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops import scan, while_loop

from monograph.errors import UnsupportedError
from monograph.frontends.torch import import_torch
from monograph.frontends.torch.runner import TorchModel
from monograph.frontends.torch.types import (
    SymbolTable,
    array_from_torch,
    array_to_torch,
    dtype_from_torch,
    dtype_to_torch,
)
from monograph.ir.dims import Symbol, dim_max
from monograph.ir.types import DTYPES
from monograph.ir.verify import verify


def check(function: Any, *inputs: torch.Tensor) -> Any:
    model = import_torch(function, *inputs)
    verify(model.graph)
    got = TorchModel(model)(*(x.clone() for x in inputs))
    expected = function(*(x.clone() for x in inputs))
    torch.testing.assert_close(got, expected)
    return model


def ops_of(model: Any) -> list[str]:
    return [node.op.name for node in model.graph.walk()]


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_cond_becomes_if(first: float) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.cond(x[0] > 0, lambda x: x * y, lambda x: x - 1, (x,))

    assert "if" in ops_of(check(function, torch.tensor([first, 2.0])))


def test_while_loop_becomes_while() -> None:
    def function(x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

    assert "while" in ops_of(check(function, torch.ones(3)))


def test_scan_becomes_scan() -> None:
    def function(x: torch.Tensor) -> Any:
        return scan(lambda carry, row: (carry + row, carry * row), x[0].clone(), x, dim=0)

    assert "scan" in ops_of(check(function, torch.randn(4, 3)))


def test_a_part_without_gradients_is_read_in_place() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        with torch.no_grad():
            z = y.exp()
        return z + y

    check(function, torch.randn(3))


@pytest.fixture(scope="module")
def library() -> Iterator[None]:
    @torch.library.custom_op("monograph_test::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factor: float, sizes: list[int]) -> torch.Tensor:
        return x * factor + sum(sizes)

    @scaled.register_fake
    def _(x: torch.Tensor, factor: float, sizes: list[int]) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.library.custom_op("monograph_test::accumulate", mutates_args=("total",))
    def accumulate(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return x * 2

    @accumulate.register_fake
    def _(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    yield


@pytest.mark.usefixtures("library")
def test_a_custom_op_becomes_an_opaque_call_that_is_reported() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.monograph_test.scaled(x, 2.5, [1, 2]) + 1

    model = check(function, torch.randn(3))
    assert model.opaque_calls == ("monograph_test.scaled.default",)


@pytest.mark.usefixtures("library")
def test_a_custom_op_may_write_to_its_arguments() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        result = torch.ops.monograph_test.accumulate(x, total)
        return result + total

    check(function, torch.randn(3))


def test_an_op_without_a_converter_is_taken_apart() -> None:
    from monograph.frontends.torch.registry import find_converter

    assert find_converter("aten.tanhshrink.default") is None
    check(torch.nn.functional.tanhshrink, torch.randn(5))


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
def test_where_alone_finds_the_places_by_axis(shape: tuple[int, ...]) -> None:
    x = torch.arange(6.0)[2] if not shape else torch.arange(6.0).reshape(shape)
    check(lambda x: torch.where(x > 1), x)


def test_a_scalar_has_no_axes_to_move() -> None:
    check(lambda x: x.sum().movedim(0, -1), torch.randn(3))
    check(lambda x: x.sum().mT, torch.randn(3))


def test_a_window_of_a_known_length_is_data() -> None:
    model = check(lambda x: x * torch.hamming_window(8) + torch.kaiser_window(8), torch.randn(8))
    assert "torch.call" not in ops_of(model)


@pytest.mark.parametrize(
    ("shape", "axis", "size", "step"),
    [((11,), 0, 4, 2), ((2, 12, 3), 1, 5, 3), ((9, 2), 0, 2, 4), ((40,), 0, 20, 1), ((), 0, 1, 1)],
)
def test_windows_laid_over_one_another_are_added(
    shape: tuple[int, ...], axis: int, size: int, step: int
) -> None:
    def laid_over(windows: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.unfold_backward(windows, shape, axis, size, step)

    model = check(laid_over, torch.randn(torch.empty(shape).unfold(axis, size, step).shape))
    assert ops_of(model).count("scatter") <= 1


@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (3, 6, 8)])
def test_tiles_of_an_image_are_cut_and_joined_without_indices(shape: tuple[int, ...]) -> None:
    def tiled(x: torch.Tensor) -> torch.Tensor:
        columns = torch.nn.functional.unfold(x, (2, 4), stride=(2, 4))
        return torch.nn.functional.fold(columns.relu(), (6, 8), (2, 4), stride=(2, 4))

    names = ops_of(check(tiled, torch.randn(shape)))
    assert "gather" not in names and "scatter" not in names


@pytest.mark.parametrize("shape", [(2, 3, 6, 8), (3, 6, 8)])
def test_overlapping_patches_are_added_up(shape: tuple[int, ...]) -> None:
    def patched(x: torch.Tensor) -> torch.Tensor:
        columns = torch.nn.functional.unfold(x, 3, dilation=2, padding=2, stride=(1, 2))
        return torch.nn.functional.fold(columns, (6, 8), 3, dilation=2, padding=2, stride=(1, 2))

    check(patched, torch.randn(shape))


def test_torch_s_sign_of_what_is_not_a_number_is_zero() -> None:
    check(lambda x: (torch.sign(x), torch.sgn(x)), torch.tensor([2.0, -3.0, 0.0, float("nan")]))


def test_the_least_integer_has_torch_s_common_divisors() -> None:
    x = torch.tensor([-32768, -32768, 300, 126, 0, 12], dtype=torch.int16)
    y = torch.tensor([300, 126, -32768, -32768, -32768, -18], dtype=torch.int16)
    check(lambda x, y: torch.gcd(x, y), x, y)


def test_vmap_is_carried_out() -> None:
    check(torch.func.vmap(lambda row: row.softmax(0) @ row), torch.randn(5, 3))


def test_gradients_that_func_takes_inside_of_a_program_are_written_out() -> None:
    check(torch.func.grad(lambda x: (x**3).sum()), torch.randn(3))


def test_a_training_step_is_a_program_like_any_other() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.GELU())

    def step(x: torch.Tensor) -> Any:
        with torch.enable_grad():
            loss = layers(x).square().sum()
            return loss.detach(), *torch.autograd.grad(loss, list(layers.parameters()))

    check(step, torch.randn(3, 4))


def test_a_while_loop_that_carries_numbers_is_refused() -> None:
    def function(x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))

    with pytest.raises(UnsupportedError, match="0-d tensors instead"):
        import_torch(function, torch.ones(2))


# dtypes and sizes.


TORCH_LACKS = ("string", "f4e2m1fn", "i4", "u4", "i2", "u2")


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in TORCH_LACKS])
def test_dtypes_go_to_torch_and_back(name: str) -> None:
    dtype = DTYPES[name]
    assert dtype_from_torch(dtype_to_torch(dtype)) is dtype


def test_a_dtype_that_we_lack_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.quint8"):
        dtype_from_torch(torch.quint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool])
def test_arrays_share_the_tensor_s_memory(dtype: torch.dtype) -> None:
    tensor = torch.randn(6, 4).to(dtype).t()[::2]
    array = array_from_torch(tensor)
    assert array.__array_interface__["data"][0] == tensor.data_ptr()
    back = array_to_torch(array)
    assert back.dtype == dtype
    assert torch.equal(back.float(), tensor.float())


def test_a_read_only_or_reversed_array_is_copied_for_torch() -> None:
    array = np.arange(4.0)[::-1]
    assert torch.equal(
        array_to_torch(array), torch.tensor([3.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    )


def test_sympy_expressions_become_dimensions() -> None:
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Max, Mod
    from torch.utils._sympy.value_ranges import ValueRanges

    s = sympy.Symbol("s0", integer=True, positive=True)
    table = SymbolTable({s: ValueRanges(2, 8)}, {"s0": "batch"})
    batch = Symbol("batch", 2, 8)
    assert table.expression(2 * s + 1) == 2 * batch + 1
    assert table.expression(FloorDiv(s, 3)) == batch // 3
    assert table.expression(Mod(s, 4)) == batch % 4
    assert table.expression(Max(s, 5)) == dim_max(batch, 5)
    assert table.expression(s**2) == batch * batch
    with pytest.raises(UnsupportedError, match="in the size"):
        table.expression(sympy.sin(s))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_behind_the_first_minus_one_are_none(reduction: str) -> None:
    targets = torch.tensor([[1, 3, -1, 0, 2], [4, 0, 1, 2, 3], [-1, 1, 1, 1, 1]])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.multilabel_margin_loss(x, targets, reduction=reduction)

    check(loss, torch.randn(3, 5))


def test_one_class_without_an_axis_has_a_margin_too() -> None:
    check(lambda x: torch.nn.functional.multilabel_margin_loss(x, torch.tensor(0)), torch.ones(()))


def test_a_slice_that_is_written_is_put_between_what_stays() -> None:
    model = check(
        lambda x, y: torch.slice_scatter(x, y, 1, 2, 5), torch.randn(3, 7), torch.randn(3, 3)
    )
    assert "concat" in ops_of(model) and "scatter" not in ops_of(model)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_equal_size_are_reduced_without_being_scattered(mode: str) -> None:
    indices = torch.tensor([[0, 2, 2], [1, 3, 0]])
    bags = torch.nn.EmbeddingBag(5, 4, mode=mode, padding_idx=0).double()
    model = check(bags, indices)
    assert "put_along_axis" not in ops_of(model)


def test_a_bag_of_one_index_is_that_row() -> None:
    model = check(torch.nn.EmbeddingBag(5, 4, mode="sum").double(), torch.tensor([[3], [0], [3]]))
    assert "put_along_axis" not in ops_of(model)


@pytest.mark.parametrize(
    ("left", "right"), [((24, 8), (3, 8, 16)), ((3, 16, 8), (8, 24)), ((16, 24), (24, 8))]
)
def test_grouped_products_are_one_op(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    ends = torch.tensor([9, 9, 24], dtype=torch.int32)
    check(
        lambda x, y: torch.nn.functional.grouped_mm(x, y, offs=ends),
        torch.randn(*left, dtype=torch.bfloat16),
        torch.randn(*right, dtype=torch.bfloat16),
    )


def test_the_gradient_of_a_max_pool_goes_where_its_indices_say() -> None:
    def step(x: torch.Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            pooled = torch.nn.functional.max_pool2d(x, 3, 2, 1)
            return torch.autograd.grad(pooled.square().sum(), x)

    check(step, torch.randn(2, 3, 7, 8))


BAG = torch.nn.functional.embedding_bag


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sum"},
        {"mode": "mean"},
        {"mode": "max"},
        {"mode": "mean", "padding_idx": 2},
        {"mode": "max", "padding_idx": 2},
        {"mode": "sum", "include_last_offset": True},
    ],
)
def test_the_gradient_of_bags_goes_to_the_rows_they_read(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2]), torch.tensor([0, 2, 2, 6, 7])

    def step(table: torch.Tensor) -> Any:
        with torch.enable_grad():
            table = table.detach().requires_grad_(True)
            return torch.autograd.grad(
                BAG(indices, table, offsets, **options).square().sum(), table
            )

    check(step, torch.randn(6, 3, dtype=torch.float64))


def test_the_gradient_of_bags_reaches_the_weights_of_their_samples() -> None:
    indices, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2, 2])

    def step(table: torch.Tensor, weights: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(True) for x in (table, weights)]
            bags = BAG(indices, leaves[0], offsets, mode="sum", per_sample_weights=leaves[1])
            return torch.autograd.grad(bags.square().sum(), leaves)

    check(step, torch.randn(6, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64))


@pytest.mark.parametrize("repeats", [[1, 3, 2], [0, 0, 2], [2], 2])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_elements_are_repeated_as_often_as_a_tensor_says(repeats: Any, axis: int | None) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    line = x if axis is not None else x[0]
    check(lambda x, repeats: x.repeat_interleave(repeats, axis) * 2, line, torch.tensor(repeats))
    check(lambda x: x.repeat_interleave(torch.tensor(repeats), axis), line)


def test_a_list_inside_of_an_op_s_results_stays_one() -> None:
    check(lambda x: torch.histogramdd(x, [2, 3]), torch.randn(5, 2))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.linalg.solve(a, b),
        lambda a, b: torch.linalg.solve(a, b.mT, left=False),
        lambda a, b: torch.linalg.det(a) * b,
        lambda a, b: torch.linalg.slogdet(a)[1] * b,
    ],
)
def test_gradients_through_factors_that_torch_saves(function: Any, transposed: bool) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)

    def step(a: torch.Tensor, b: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(True) for x in (a, b)]
            return torch.autograd.grad(function(*leaves).square().sum(), leaves)

    check(step, a.mT if transposed else a, b)


def test_elements_are_repeated_to_a_length_that_is_given() -> None:
    x, repeats = torch.randn(3, 2), torch.tensor([1, 3, 2])
    model = check(lambda x, n: x.repeat_interleave(n, 0, output_size=6), x, repeats)
    assert model.graph.outputs[0].shape == (6, 2)


@pytest.mark.parametrize(
    "options", [{"mode": "sum"}, {"mode": "mean", "include_last_offset": True}]
)
def test_bags_that_begin_anywhere_are_one_op(options: dict[str, Any]) -> None:
    indices, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2, 2, 5])
    model = check(lambda table: BAG(indices, table, offsets, **options), torch.randn(6, 3).double())
    assert "bag_sums" in ops_of(model)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 30), (17, 9), (1, 1)])
def test_images_are_blended_without_aliasing(mode: str, size: tuple[int, int]) -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=size, mode=mode, antialias=True)

    model = check(resize, torch.randn(2, 3, 13, 20, dtype=torch.float64))
    assert "dot_general" not in ops_of(model)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 30), (17, 9), (13, 4)])
def test_images_of_bytes_are_blended_by_whole_numbers(mode: str, size: tuple[int, int]) -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=size, mode=mode, antialias=True)

    check(resize, torch.randint(0, 256, (2, 3, 13, 20), dtype=torch.uint8))


def test_frames_of_a_signal_are_counted_not_listed() -> None:
    model = check(lambda x: x.as_strided((3, 5, 8), (40, 6, 1), 2) * 2, torch.randn(3, 40))
    constants = [node.result for node in model.graph.nodes if node.op.name == "constant"]
    assert all(value.tensor.size == 1 for value in constants)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x @ x.mT).norm(dim=1),
        lambda x: (x @ x.mT).norm(3, dim=1),
        lambda x: (x @ x.mT).std(1),
        lambda x: torch.std_mean(x @ x.mT, 1)[0],
    ],
)
def test_squares_of_halves_are_not_stored_as_halves(function: Any) -> None:
    """A square of more than 256 is none; the root of a sum of squares is a half again."""
    import monograph

    x = torch.randn(11, 11, generator=torch.Generator().manual_seed(0)).mul(12).half()
    found, expected = monograph.compile(function, x)(x), function(x)
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("order", [0, 1, 2, 3, torch.inf])
def test_the_norm_of_one_number_does_not_overflow(order: float) -> None:
    x = torch.tensor([[-3e35], [1e-30], [0.0], [2.5]])
    check(lambda x: torch.linalg.vector_norm(x, order, 1), x)
    check(lambda x: torch.nn.functional.normalize(x, float(order), 1), x)

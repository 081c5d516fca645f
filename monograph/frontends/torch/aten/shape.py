"""The same elements in another shape or order: view, permute, expand, squeeze, flip, roll…

torch has recorded the shape of every result, so a converter need not work out ``-1`` again.
"""

from __future__ import annotations

from typing import Any, Literal

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, as_list
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim, dim_max, dim_min, provably_equal
from monograph.ir.graph import Value


@converter(
    "aten.view.default",
    "aten.view_copy.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten._reshape_alias.default",
    "aten._reshape_copy.default",
    "aten._reshape_alias_copy.default",
    "aten.reshape_as.default",
    "aten.view_as.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.ravel.default",
)
def _reshape(node: TorchNode) -> Value:
    return F.reshape(node["self"], node.result_type().shape)


@converter(
    "aten.expand.default",
    "aten.expand_copy.default",
    "aten.expand_as.default",
    "aten.broadcast_to.default",
)
def _expand(node: TorchNode) -> Value:
    return F.expand(node["self"], node.result_type().shape)


@converter("aten.permute.default", "aten.permute_copy.default")
def _permute(node: TorchNode) -> Value:
    return F.transpose(node["self"], node["dims"])


@converter("aten.transpose.int", "aten.transpose_copy.int")
def _transpose(node: TorchNode) -> Value:
    return swap_axes(node["self"], node["dim0"], node["dim1"])


@converter("aten.swapaxes.default")
def _swapaxes(node: TorchNode) -> Value:
    return swap_axes(node["self"], node["axis0"], node["axis1"])


@converter("aten.swapdims.default")
def _swapdims(node: TorchNode) -> Value:
    return swap_axes(node["self"], node["dim0"], node["dim1"])


def swap_axes(x: Value, a: int, b: int) -> Value:
    """``x`` with two axes exchanged; a scalar has none to exchange."""
    return x if x.rank == 0 else F.swapaxes(x, a, b)


@converter("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default")
def _t(node: TorchNode) -> Value:
    return F.transpose(node["self"])


@converter("aten.mT.default")
def _matrix_transpose(node: TorchNode) -> Value:
    return swap_axes(node["self"], -1, -2)


@converter("aten.mH.default", "aten.adjoint.default")
def _adjoint(node: TorchNode) -> Value:
    return F.conj(swap_axes(node["self"], -1, -2))


@converter("aten.movedim.intlist", "aten.moveaxis.intlist", "aten.movedim.int", "aten.moveaxis.int")
def _moveaxis(node: TorchNode) -> Value:
    x = node["self"]
    return x if x.rank == 0 else F.moveaxis(x, node["source"], node["destination"])


@converter("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def _unsqueeze(node: TorchNode) -> Value:
    return F.unsqueeze(node["self"], node["dim"])


@converter(
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
)
def _squeeze(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.rank == 0:
        return x
    named = node.get("dim")
    axes = range(x.rank) if named is None else [axis % x.rank for axis in as_list(named)]
    ones = [axis for axis in axes if provably_equal(x.shape[axis], 1)]
    return F.squeeze(x, ones) if ones else x


@converter("aten.repeat.default")
def _repeat(node: TorchNode) -> Value:
    return F.tile(node["self"], node["repeats"])


@converter("aten.tile.default")
def _tile(node: TorchNode) -> Value:
    return F.tile(node["self"], node["dims"])


@converter("aten.flip.default")
def _flip(node: TorchNode) -> Value:
    x: Value = node["self"]
    return F.flip(x, node["dims"]) if x.rank and node["dims"] else x


@converter("aten.roll.default")
def _roll(node: TorchNode) -> Value:
    x: Value = node["self"]
    shifts, axes = as_list(node["shifts"]), as_list(node["dims"])
    if x.rank == 0:
        return x
    if not axes:
        return F.roll(x, shifts[0])
    for shift, axis in zip(shifts, axes, strict=True):  # one axis may be named twice
        x = F.roll(x, [shift], [axis])
    return x


@converter("aten.rot90.default")
def _rot90(node: TorchNode) -> Value:
    x: Value = node["self"]
    first, second = (axis % x.rank for axis in node["dims"])
    turns = node["k"] % 4
    if turns == 0:
        return x
    if turns == 2:
        return F.flip(x, (first, second))
    if turns == 1:
        return F.swapaxes(F.flip(x, second), first, second)
    return F.flip(F.swapaxes(x, first, second), second)


@converter("aten.tril.default")
def _tril(node: TorchNode) -> Value:
    return F.tril(node["self"], node["diagonal"])


@converter("aten.triu.default")
def _triu(node: TorchNode) -> Value:
    return F.triu(node["self"], node["diagonal"])


@converter("aten.pixel_shuffle.default")
def _pixel_shuffle(node: TorchNode) -> Value:
    x, factor = node["self"], node["upscale_factor"]
    *batch, channels, height, width = x.shape
    n = len(batch)
    split = F.reshape(x, (*batch, channels // factor**2, factor, factor, height, width))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return F.reshape(F.transpose(split, order), node.result_type().shape)


@converter("aten.pixel_unshuffle.default")
def _pixel_unshuffle(node: TorchNode) -> Value:
    x, factor = node["self"], node["downscale_factor"]
    *batch, channels, height, width = x.shape
    n = len(batch)
    split = F.reshape(x, (*batch, channels, height // factor, factor, width // factor, factor))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return F.reshape(F.transpose(split, order), node.result_type().shape)


@converter("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def _channel_shuffle(node: TorchNode) -> Value:
    x, groups = node["self"], node["groups"]
    batch, channels, *rest = x.shape
    split = F.reshape(x, (batch, groups, channels // groups, *rest))
    return F.reshape(F.swapaxes(split, 1, 2), x.shape)


# Borders.


@converter("aten.constant_pad_nd.default")
def _constant_pad(node: TorchNode) -> Value:
    x: Value = node["self"]
    low, high = borders(x, node["pad"])
    value = node["value"]
    if isinstance(value, int | float) and not x.dtype.is_complex:
        number = float(value) if x.dtype.is_float else int(value)
        return F.pad(x, low, high, bool(number) if x.dtype.kind.name == "BOOL" else number)
    inside = F.pad(F.full(x.shape, True, "bool"), low, high, False)
    return F.where(inside, F.pad(x, low, high), node.value(value, x.dtype))


def borders(x: Value, pad: list[Dim]) -> tuple[list[Dim], list[Dim]]:
    """torch's paddings, last dimension first, as amounts before and after each dimension."""
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for index in range(len(pad) // 2):
        low[x.rank - 1 - index] = pad[2 * index]
        high[x.rank - 1 - index] = pad[2 * index + 1]
    return low, high


@converter(
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
)
def _reflection_pad(node: TorchNode) -> Value:
    return F.pad(node["self"], *borders(node["self"], node["padding"]), mode="reflect")


@converter(
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
)
def _replication_pad(node: TorchNode) -> Value:
    return F.pad(node["self"], *borders(node["self"], node["padding"]), mode="edge")


@converter("aten._pad_circular.default")
def _circular_pad(node: TorchNode) -> Value:
    return pad_circular(node["self"], node["pad"])


def pad_circular(x: Value, pad: list[Dim]) -> Value:
    """``x`` with borders that go round; what is cropped does not come round again."""
    low, high = borders(x, pad)
    cropped = F.pad(x, [dim_min(each, 0) for each in low], [dim_min(each, 0) for each in high])
    before, after = [dim_max(each, 0) for each in low], [dim_max(each, 0) for each in high]
    return F.pad(cropped, before, after, mode="wrap")


@converter("aten.pad.default")
def _pad(node: TorchNode) -> Value:
    mode, fill = node["mode"], node["value"]
    if mode == "constant":
        value = 0 if fill is None else fill
        given = {"self": node["self"], "pad": node["pad"], "value": value}
        padded: Value = node.call("aten.constant_pad_nd.default", **given)
        return padded
    if mode == "circular":
        return pad_circular(node["self"], node["pad"])
    named: Literal["reflect", "edge"] = "reflect" if mode == "reflect" else "edge"
    return F.pad(node["self"], *borders(node["self"], node["pad"]), mode=named)


@converter("aten.resize.default")
def _resize(node: TorchNode) -> Value:
    """The first elements in another shape; zeros where there are not so many."""
    x: Value = node["self"]
    type_ = node.result_type()
    flat = F.reshape(x, (x.tensor.size,))
    missing = dim_max(type_.size - x.tensor.size, 0)
    grown = F.pad(flat, [0], [missing])
    return F.reshape(F.slice(grown, [0], [type_.size]), type_.shape)


@converter("aten.sym_size.default")
def _sizes(node: TorchNode) -> Any:
    return tuple(node["self"].shape)

"""XLA's general convolution as ours: any layout, dilations of both operands, groups of both kinds.

Ours takes [batch, channels, *spatial] with one to three spatial axes, real numbers and one kind of
group. An operand that is dilated is padded between its elements; groups of the batch become groups
of channels; complex numbers are four real convolutions.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.frontends.xla.arithmetic import convert
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import DType, bool_

MAX_SPATIAL_AXES = 3


@dataclass(frozen=True)
class ConvDims:
    """The axes of each operand and of the result: batch, feature, then spatial ones.

    Of the weights, the output feature axis comes first.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]


@dataclass(frozen=True)
class ConvWindow:
    """How the weights slide, for each spatial axis."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]


def convolve(
    lhs: Value,
    rhs: Value,
    dims: ConvDims,
    window: ConvWindow,
    feature_groups: int,
    batch_groups: int,
    dtype: DType,
) -> Value:
    """The convolution in ``dtype``, which the operands are converted to if that is wider."""
    x = convert(F.transpose(lhs, dims.lhs), dtype)
    weight = convert(F.transpose(rhs, dims.rhs), dtype)
    x, window = _dilate(x, window)
    groups = feature_groups
    if batch_groups > 1:
        x, groups = _batch_to_channels(x, batch_groups), batch_groups
    sizes = _result_sizes(x, weight, window)
    if 0 in sizes:
        result = F.full((x.shape[0], weight.shape[0], *sizes), 0, x.dtype)
    else:
        result = _convolve_numbers(x, weight, window, groups)
    order = [0] * result.rank
    for place, axis in enumerate(dims.out):
        order[axis] = place
    return F.transpose(result, order)


def _result_sizes(x: Value, weight: Value, window: ConvWindow) -> list[Dim]:
    """How often the window fits along each spatial axis: 0 where it is larger than the operand."""
    sizes: list[Dim] = []
    for axis, (before, after) in enumerate(window.padding):
        size, taps = x.shape[axis + 2] + before + after, weight.shape[axis + 2]
        left = size - ((taps - 1) * window.rhs_dilation[axis] + 1)
        sizes.append(0 if isinstance(left, int) and left < 0 else left // window.strides[axis] + 1)
    return sizes


def _dilate(x: Value, window: ConvWindow) -> tuple[Value, ConvWindow]:
    """Zeros between the elements, and negative padding cut off, so that only plain one is left."""
    cut = any(amount < 0 for pair in window.padding for amount in pair)
    if not cut and all(step == 1 for step in window.lhs_dilation):
        return x, window
    low = [0, 0, *(min(before, 0) for before, _ in window.padding)]
    high = [0, 0, *(min(after, 0) for _, after in window.padding)]
    interior = [0, 0, *(step - 1 for step in window.lhs_dilation)]
    left = tuple((max(before, 0), max(after, 0)) for before, after in window.padding)
    ones = (1,) * len(window.strides)
    return (
        F.pad(x, low, high, interior=interior),
        ConvWindow(window.strides, left, ones, window.rhs_dilation),
    )


def _batch_to_channels(x: Value, groups: int) -> Value:
    """Each group of the batch beside the others, as channels: [batch/g, g * channels, …]."""
    batch, channels, *spatial = x.shape
    apart = F.reshape(x, (groups, batch // groups, channels, *spatial))
    beside = F.transpose(apart, (1, 0, 2, *range(3, apart.rank)))
    return F.reshape(beside, (batch // groups, groups * channels, *spatial))


def _convolve_numbers(x: Value, weight: Value, window: ConvWindow, groups: int) -> Value:
    if not x.dtype.is_complex:
        return _convolve_real(x, weight, window, groups)

    def product(a: Value, b: Value) -> Value:
        return _convolve_real(a, b, window, groups)

    of_x, of_w = (F.real(x), F.imag(x)), (F.real(weight), F.imag(weight))
    return F.complex(
        F.subtract(product(of_x[0], of_w[0]), product(of_x[1], of_w[1])),
        F.add(product(of_x[0], of_w[1]), product(of_x[1], of_w[0])),
    )


def _convolve_real(x: Value, weight: Value, window: ConvWindow, groups: int) -> Value:
    spatial = x.rank - 2
    if x.dtype is bool_:
        raise UnsupportedError("a convolution of bools has no meaning here")
    if spatial == 0:
        widened = _convolve_real(
            F.unsqueeze(x, 2),
            F.unsqueeze(weight, 2),
            ConvWindow((1,), ((0, 0),), (1,), (1,)),
            groups,
        )
        return F.squeeze(widened, 2)
    if spatial > MAX_SPATIAL_AXES:
        return _convolve_by_taps(x, weight, window, groups)
    return F.conv(
        x,
        weight,
        stride=window.strides,
        padding=window.padding,
        dilation=window.rhs_dilation,
        groups=groups,
    )


def _convolve_by_taps(x: Value, weight: Value, window: ConvWindow, groups: int) -> Value:
    """Convolutions over the last axes, one for each tap of the first spatial one, added up."""
    before, after = window.padding[0]
    padded = F.pad(x, [0, 0, before, *(0,) * (x.rank - 3)], [0, 0, after, *(0,) * (x.rank - 3)])
    taps, step, size = weight.shape[2], window.strides[0], padded.shape[2]
    assert isinstance(taps, int) and isinstance(size, int)
    reach = (taps - 1) * window.rhs_dilation[0] + 1
    count = max((size - reach) // step + 1, 0)
    inner = ConvWindow(
        window.strides[1:], window.padding[1:], window.lhs_dilation[1:], window.rhs_dilation[1:]
    )
    total: Value | None = None
    for tap in range(taps):
        rows = _stride_slice(padded, 2, tap * window.rhs_dilation[0], step, count)
        part = _convolve_batched(rows, _at(weight, 2, tap), inner, groups)
        total = part if total is None else F.add(total, part)
    assert total is not None
    return total


def _convolve_batched(x: Value, weight: Value, window: ConvWindow, groups: int) -> Value:
    """A convolution over all but the first spatial axis, which counts as a part of the batch."""
    batch, channels, rows, *spatial = x.shape
    beside = F.transpose(x, (0, 2, 1, *range(3, x.rank)))
    flat = F.reshape(beside, (batch * rows, channels, *spatial))
    made = _convolve_real(flat, weight, window, groups)
    apart = F.reshape(made, (batch, rows, *made.shape[1:]))
    return F.transpose(apart, (0, 2, 1, *range(3, apart.rank)))


def _stride_slice(x: Value, axis: int, first: int, step: int, count: int) -> Value:
    starts, limits, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    starts[axis], steps[axis] = first, step
    limits[axis] = first + (count - 1) * step + 1 if count else first
    return F.slice(x, starts, limits, steps)


def _at(x: Value, axis: int, place: int) -> Value:
    return F.squeeze(_stride_slice(x, axis, place, 1, 1), axis)

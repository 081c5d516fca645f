"""The window attributes that convolutions and pools share: kernel, stride, dilation, padding.

``auto_pad`` SAME_UPPER and SAME_LOWER ask for ``ceil(size / stride)`` windows; the odd element of
padding goes to the end or to the beginning. It depends on the size unless the stride is 1. Windows
have padding that is known, so that a tensor of symbolic size is padded before they are placed:

    conv(x) {auto_pad = SAME_UPPER}  ─▶  conv(pad(x) {high = [0, 0, ceil(h/2)*2 - h + 1, …]})
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.ir.dims import Dim, Shape, dim_max, is_static
from monograph.ir.graph import Value
from monograph.ops.windows import Pairs

Total = TypeVar("Total", int, Dim)


@dataclass(frozen=True)
class Geometry:
    """Kernel, stride, padding and dilation of each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]

    @property
    def spans(self) -> tuple[int, ...]:
        """The elements from the first to the last of a window, both included."""
        pairs = zip(self.kernel, self.dilation, strict=True)
        return tuple(apart * (size - 1) + 1 for size, apart in pairs)


def read_geometry(
    node: OnnxNode, x: Value, kernel: Shape | None = None, *, leading: int = 2
) -> Geometry:
    """The windows of a node over ``x``; ``kernel`` are the sizes of its weights, if it has any.

    A node whose padding depends on a symbolic size is deferred; see ``place_windows``.
    """
    windows, border = _windows_and_border(node, x, kernel, leading)
    if border is not None:
        raise NotStatic(f"{node.name}: the padding depends on a size that only the run knows")
    return windows


def place_windows(
    node: OnnxNode, x: Value, kernel: Shape | None = None, *, fill: float = 0
) -> tuple[Geometry, Value]:
    """The windows of a node, and the tensor to place them on.

    That is ``x``, or ``x`` between borders of ``fill`` where the padding depends on symbolic sizes.
    """
    windows, border = _windows_and_border(node, x, kernel, 2)
    if border is None:
        return windows, x
    lows, highs = zip(*border, strict=True)
    return windows, F.pad(x, (0, 0, *lows), (0, 0, *highs), fill)


def _windows_and_border(
    node: OnnxNode, x: Value, kernel: Shape | None, leading: int
) -> tuple[Geometry, tuple[tuple[Dim, Dim], ...] | None]:
    """The windows, and what is to be added on either side before they are placed, if anything."""
    rank = x.rank - leading
    if rank < 0:
        raise node.error("too few dimensions", expected="[batch, channels, ...]", found=str(x.type))
    sizes = _kernel(node, kernel)
    stride = per_axis(node, "strides", rank)
    dilation = per_axis(node, "dilations", rank)
    if len(sizes) != rank:
        raise node.error(
            "the kernel does not fit the operand",
            expected=f"{rank} spatial dimensions",
            found=f"{list(sizes)} for {x.type}",
        )
    plain = Geometry(sizes, stride, ((0, 0),) * rank, dilation)
    padding = _padding(node, x.shape[leading:], plain)
    known = tuple((a, b) for a, b in padding if isinstance(a, int) and isinstance(b, int))
    if len(known) < rank:
        return plain, padding
    return Geometry(sizes, stride, known, dilation), None


def _kernel(node: OnnxNode, weights: Shape | None) -> tuple[int, ...]:
    if weights is None:
        return node.ints("kernel_shape")
    if node.has("kernel_shape"):
        given = node.ints("kernel_shape")
        if is_static(weights) and given != weights:
            raise node.error(
                "kernel_shape is not that of the weights", expected=str(weights), found=str(given)
            )
        return given
    if not is_static(weights):
        raise NotStatic(f"{node.name}: the size of the kernel is not known before it runs")
    return weights


def per_axis(node: OnnxNode, name: str, rank: int) -> tuple[int, ...]:
    """An attribute with an int for each spatial dimension; ones if it is not given."""
    given = node.ints(name, ())
    if given and len(given) != rank:
        raise node.error(f"{name} does not fit", expected=f"{rank} integers", found=str(given))
    return given or (1,) * rank


def _padding(node: OnnxNode, sizes: Shape, plain: Geometry) -> tuple[tuple[Dim, Dim], ...]:
    mode = node.string("auto_pad", "NOTSET")
    if mode == "NOTSET" or not mode:
        return explicit_padding(node, len(sizes))
    if mode == "VALID":
        return plain.padding
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error("unknown auto_pad", found=mode)
    dims = zip(sizes, plain.spans, plain.stride, strict=True)
    totals = [_same_total(*each) for each in dims]
    return tuple(halves(total, upper=mode == "SAME_UPPER") for total in totals)


def explicit_padding(node: OnnxNode, rank: int) -> Pairs:
    """The attribute ``pads``, all beginnings and then all ends, as pairs."""
    pads: Sequence[int] = node.ints("pads", ()) or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise node.error("pads does not fit", expected=f"{2 * rank} integers", found=str(pads))
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def halves(total: Total, *, upper: bool) -> tuple[Total, Total]:
    """Padding shared out to both ends, the odd element at the end if ``upper``."""
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


def _same_total(size: Dim, span: int, stride: int) -> Dim:
    """The padding for which there are ``ceil(size / stride)`` windows."""
    if stride == 1:
        return span - 1
    last = ((size + stride - 1) // stride - 1) * stride  # where the last window begins
    total = last + span - size
    # Of windows that touch each other, the last one always reaches the end.
    return total if not isinstance(size, int) and span >= stride else dim_max(total, 0)

"""Chooses between our kernel and a library call for each node, by shape.

What the chip was measured to do decides (``Chip.measured``); where nothing was measured, a rule
does. A *site* is a place where there is a choice: a product with the bias and the activation behind
it, or an attention. ``tuning.gpu_contests`` measures the contenders of sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, provably_equal, shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType, bf16, f16
from monograph.kernel.lower import is_lowerable
from monograph.ops.activation import Gelu
from monograph.ops.attention import Attention
from monograph.ops.elementwise import Add
from monograph.ops.linalg import DotGeneral
from monograph.ops.linear_activation import LinearActivation
from monograph.ops.rectifier import Relu
from monograph.ops.shape import Reshape, Transpose
from monograph.ops.slicing import Slice
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.libraries import library_of

MIN_SIDE = 16
"""Rows, columns and steps of k from which a product is a library's."""
OURS, CUBLAS, CUBLASLT = "ours", "cuBLAS", "cuBLASLt"
"""Contenders for a product: our kernel with what is fused to it; the product alone by the library;
the product with its bias and activation by the library."""
ATTENTION_BACKENDS = ("cuDNN", "flash")
"""Contenders for an attention, beside our kernel, as torch calls what computes it."""


@dataclass(frozen=True)
class Site:
    """A place where there is a choice, and its nodes."""

    key: str
    nodes: tuple[Node, ...]
    activation: str = ""
    """For a product with a bias: the activation behind it, or ``none``."""
    is_turned: bool = False
    """For an attention: whether operands are views, which a kernel of ours would want copied."""


# The choice ---------------------------------------------------------------------------------------


def prefers_library(node: Node, chip: Chip) -> bool:
    """Whether a library computes a node better than a kernel of ours, or only a library does."""
    return why_library(node, chip) is not None


def why_library(node: Node, chip: Chip) -> str | None:
    """Why a library computes a node; None if a kernel of ours had better."""
    if chip.backend != "cuda" or library_of(node) is None:
        return None
    measured = _find_winner(node, chip)
    if measured is not None:
        return None if measured.startswith(OURS) else f"measured: {measured} is the fastest"
    match node.op:
        case DotGeneral():
            if not is_large_product(node, node.op):
                return None
            return f"all sides of the product have at least {MIN_SIDE}"
        case Attention():
            if node.operands[0].dtype not in (f16, bf16):
                return None
            return "an attention of 16-bit floats"
        case LinearActivation():
            return "the library adds the bias while sums are in registers"
        case _:
            return "no family writes it"


def attention_backend(node: Node, chip: Chip) -> str | None:
    """Which of torch's backends computes an attention; None for torch to choose."""
    found = _find_winner(node, chip) if isinstance(node.op, Attention) else None
    return found if found in ATTENTION_BACKENDS else None


def read_times(node: Node, chip: Chip) -> Mapping[str, float]:
    """The times of a site's contenders, by the node that begins it; none if nothing is known."""
    if not chip.measured.sites:
        return {}
    site = site_of(node)
    if isinstance(node.op, LinearActivation):
        return chip.measured.times(key_of_joint_site(node))
    return {} if site is None else chip.measured.times(site.key)


def _find_winner(node: Node, chip: Chip) -> str | None:
    """The measured winner of the site that a node begins, if there is one."""
    if not chip.measured.sites:
        return None
    site = site_of(node)
    return None if site is None else chip.measured.winner(site.key)


# Sites --------------------------------------------------------------------------------------------


def sites_of(graph: Graph, chip: Chip) -> Iterator[Site]:
    """The places of a graph where a library and our kernels compete."""
    if chip.backend != "cuda":
        return
    for node in graph.nodes:
        site = site_of(node)
        if site is not None and library_of(node) is not None:
            yield site


def site_of(node: Node) -> Site | None:
    """The site that a node begins; None if there is no choice, or sizes are not known."""
    if not isinstance(node.op, DotGeneral | Attention) or not _is_static(node):
        return None
    types = ", ".join(str(value.type) for value in node.operands)
    if isinstance(node.op, Attention):
        turned = ", read in place" if any(map(is_turned, node.operands)) else ""
        return Site(f"attention {node.op} of {types}{turned}", (node,), is_turned=bool(turned))
    if not is_large_product(node, node.op):
        return None
    linear = _bias_of(node)
    if linear is None:
        return Site(f"product {node.op} of {types}", (node,))
    activation = _activation_of(linear)
    if activation is None:
        if _is_fused_anyway(linear.results[0]):
            return Site(f"product {node.op} of {types}", (node,))
        return Site(f"product {node.op} of {types}, bias, none", (node, linear), "none")
    name = "relu" if isinstance(activation.op, Relu) else "gelu_tanh"
    key = f"product {node.op} of {types}, bias, {name}"
    return Site(key, (node, linear, activation), name)


def is_turned(value: Value) -> bool:
    """Whether a value is a transpose or slice, perhaps in another shape."""
    node = value.producer
    while node is not None and isinstance(node.op, Reshape):
        node = node.operands[0].producer
    return node is not None and isinstance(node.op, Transpose | Slice)


def key_of_joint_site(node: Node) -> str:
    """The key of the site that a node with its epilogue was made of."""
    op = node.op
    assert isinstance(op, LinearActivation)
    x, weight, _ = node.operands
    product = DotGeneral((x.rank - 1,), (0 if op.inputs_first else 1,))
    return f"product {product} of {x.type}, {weight.type}, bias, {op.activation}"


def _is_static(node: Node) -> bool:
    values = (*node.operands, *node.results)
    return all(isinstance(value.type, TensorType) and value.type.is_static for value in values)


def _bias_of(product: Node) -> Node | None:
    """The addition of a vector along the last axis that alone reads a product of a matrix."""
    op, (result,) = product.op, product.results
    assert isinstance(op, DotGeneral)
    rhs = product.operands[1]
    last = product.operands[0].rank - 1
    if op.lhs_batch or rhs.rank != 2 or tuple(op.lhs_contracting) != (last,):
        return None
    users = [use.node for use in result.uses]
    if len(users) != 1 or type(users[0].op) is not Add or result in _outputs(product):
        return None
    others = [value for value in users[0].operands if value is not result]
    if len(others) != 1 or others[0].rank != 1 or others[0].dtype is not result.dtype:
        return None
    if not provably_equal(others[0].shape[0], result.shape[-1]):
        return None
    return users[0] if users[0].results[0].type == result.type else None


def _activation_of(linear: Node) -> Node | None:
    """An activation that libraries know, if it alone reads a sum."""
    (result,) = linear.results
    users = [use.node for use in result.uses]
    if len(users) != 1 or result in _outputs(linear):
        return None
    op = users[0].op
    is_known = isinstance(op, Relu) or (isinstance(op, Gelu) and op.approximate == "tanh")
    return users[0] if is_known else None


def _outputs(node: Node) -> tuple[Value, ...]:
    return node.graph.outputs


def _is_fused_anyway(value: Value) -> bool:
    """Whether a kernel reads a value to compute with it: adding a bias there costs nothing."""
    for use in value.uses:
        op = use.node.op
        if isinstance(op, Reshape | Transpose | Slice):
            if _is_fused_anyway(use.node.results[0]):
                return True
        elif not isinstance(op, DotGeneral | Attention) and is_lowerable(use.node):
            return True
    return False


def _is_aligned(row: Dim) -> bool:
    """Whether rows of so many 16-bit numbers all begin where tensor cores can load from.

    Of results with other rows (a vocabulary of 50,257 words) cuBLAS has slow kernels alone.
    """
    return not isinstance(row, int) or row % 8 == 0


def is_large_product(node: Node, op: DotGeneral) -> bool:
    """Whether a product has work for tensor cores along all sides."""
    lhs, rhs = node.operands
    lhs_free, rhs_free = op.free_axes(lhs.rank, rhs.rank)
    sides = [
        shape_product(lhs.shape[axis] for axis in lhs_free),
        shape_product(rhs.shape[axis] for axis in rhs_free),
        shape_product(lhs.shape[axis] for axis in op.lhs_contracting),
    ]
    if lhs.dtype in (f16, bf16) and not _is_aligned(sides[1]):
        return False
    return all(not isinstance(side, int) or side >= MIN_SIDE for side in sides)

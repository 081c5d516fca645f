"""What moving and computing costs: bytes, instructions, and the sizes at which it matters."""

from __future__ import annotations

from monograph.ir.dims import Dim
from monograph.ir.graph import Node, Value
from monograph.ir.op import Family
from monograph.ir.types import TensorType, i64

FEW_ROWS = 16
"""Fewer rows than this keep too few threads busy to be worth one visit each."""
LARGE_ROW = 1 << 15
"""Elements from which a row is worth splitting among threads."""
SHARED_BYTES = 1 << 16
"""Bytes from which reading a value once instead of twice is worth a larger kernel."""
MOST_NODES = 40
"""Nodes up to which kernels are joined for what they read in common."""
LARGEST = 96
"""How large a kernel may grow (``Group.size``): by then its arithmetic outweighs a round trip."""
CHEAP = 4
"""Instructions an element up to which computing again beats a round trip through memory."""

CONVOLUTIONS = frozenset(("conv", "integer_conv"))
CONTRACTIONS = CONVOLUTIONS | frozenset(
    ("dot_general", "conv_transpose", "conv_weight_gradient", "attention")
)
WINDOWS = frozenset(
    (
        "max_pool",
        "avg_pool",
        "max_pool_with_indices",
        "searchsorted",
        "bincount",
    )
)
GENERATORS = frozenset(("iota", "full", "dim"))
MOVES = frozenset(("reshape", "transpose", "expand", "slice", "flip"))
POSITIONS = frozenset(("add", "subtract", "multiply", "maximum", "minimum", "relu"))
"""Ops that make positions of positions, which become part of a subscript."""
LONGEST = 16
"""Ops above a node that are looked at."""
EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log1p", "power", "sin", "cos", "atan", "atan2"),
        *("tanh", "erf", "erfc", "gelu", "sigmoid", "silu", "softplus", "mish", "log_sigmoid"),
        *("tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"),
    )
)


def work(node: Node) -> int:
    """Instructions for one element of a node's result, roughly."""
    if node.op.name in MOVES | GENERATORS or node.op.family is Family.DATA:
        return 0
    if node.op.name == "pad_border":  # where an element is from is asked twice, and it is gathered
        return 6
    if is_position(node):
        return 0
    return 12 if node.op.name in EXPENSIVE else 1


def is_position(node: Node | None, reach: int = LONGEST) -> bool:
    """Whether a node's result is arithmetic of ``iota`` and single numbers: of positions."""
    if node is None or not reach:
        return False
    if node.op.name in GENERATORS or not node.operands:
        return node.op.name in GENERATORS or node.results[0].tensor.size == 1
    if node.op.name not in POSITIONS | MOVES or node.results[0].dtype is not i64:
        return False
    return all(is_position(operand.producer, reach - 1) for operand in node.operands)


def nbytes(value: Value) -> int:
    """Bytes of a value; a symbolic dimension counts as its lower bound, or 64."""
    if not isinstance(value.type, TensorType):
        return 0
    total = value.dtype.bits // 8 or 1
    for dim in value.shape:
        total *= _likely(dim)
    return total


def _likely(dim: Dim) -> int:
    if isinstance(dim, int):
        return dim
    lower, upper = dim.bounds()
    return upper if upper is not None and upper < 4096 else max(lower or 1, 64)


def amount(count: int) -> str:
    """A number of bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"

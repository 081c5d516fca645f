"""Writing LLVM's text: blocks of instructions, values with a type and a number of lanes.

The emitter writes text rather than building objects because text is quicker to make, shows in a
listing exactly as it was written, and has every instruction and attribute of LLVM in it.
"""

from __future__ import annotations

import struct
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.types import DType, bf16, bool_, f16, f32, f64

POINTER = "ptr"
INDEX = "i64"


@dataclass(frozen=True, slots=True)
class Lanes:
    """A value in LLVM: its text, its element type, and how many elements (1: a scalar)."""

    text: str
    element: str
    lanes: int = 1

    @property
    def type(self) -> str:
        """The type as LLVM writes it."""
        return vector_type(self.element, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    """``float`` or ``<8 x float>``."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element_type(dtype: DType) -> str:
    """The type of a number in a register (a bool is one bit, a bf16 or narrower its raw bits)."""
    if dtype is bool_:
        return "i1"
    if dtype.is_float:
        return {f64: "double", f32: "float", f16: "half", bf16: "i16"}.get(dtype, "i8")
    return f"i{max(dtype.bits, 8)}"


def memory_type(dtype: DType) -> str:
    """The type of a number in memory."""
    return "i8" if dtype is bool_ else element_type(dtype)


def number(value: bool | int | float, element: str) -> str:
    """A number as LLVM writes it."""
    if element == "i1":
        return "true" if value else "false"
    if value != value:
        value = float("nan")  # one NaN for all, so that text tells it
    if element in ("float", "double"):
        narrow = value if element == "double" else _as_f32(float(value))
        return "0x" + struct.pack(">d", narrow).hex().upper()
    if element == "half":
        return "0xH" + struct.pack(">e", _as_f16(float(value))).hex().upper()
    bits = int(element[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _as_f32(value: float) -> float:
    try:
        narrow: float = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return narrow


def _as_f16(value: float) -> float:
    try:
        narrow: float = struct.unpack(">e", struct.pack(">e", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return narrow


@dataclass(slots=True)
class Block:
    """A label and the instructions under it."""

    label: str
    lines: list[str] = field(default_factory=list)


class Function:
    """The text of one function while it is written; every name in it is new."""

    def __init__(self, header: str) -> None:
        self.header = header
        self.entry = Block("entry")
        self.blocks = [self.entry]
        self.names = 0

    def name(self, hint: str = "t") -> str:
        """A new local name."""
        self.names += 1
        return f"%{hint}{self.names}"

    def block(self, hint: str) -> Block:
        """A new block; ``place`` puts it at the end of the function."""
        self.names += 1
        return Block(f"{hint}{self.names}")

    def place(self, block: Block) -> Block:
        """Put a block at the end of the function."""
        self.blocks.append(block)
        return block

    def text(self) -> str:
        """The whole function."""
        lines = [f"{self.header} {{"]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines += [f"  {line}" for line in block.lines]
        lines.append("}")
        return "\n".join(lines) + "\n"


class Builder:
    """Appends instructions to a block of a function."""

    def __init__(self, function: Function, block: Block, declarations: set[str]) -> None:
        self.function = function
        self.block = block
        self.declarations = declarations

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self.block.lines.append(text)

    def assign(self, element: str, lanes: int, instruction: str) -> Lanes:
        """An instruction with a result."""
        name = self.function.name()
        self.block.lines.append(f"{name} = {instruction}")
        return Lanes(name, element, lanes)

    def binary(self, instruction: str, a: Lanes, b: Lanes) -> Lanes:
        """``instruction type a, b`` of operands of one type."""
        return self.assign(a.element, a.lanes, f"{instruction} {a.type} {a.text}, {b.text}")

    def compare(self, instruction: str, a: Lanes, b: Lanes) -> Lanes:
        """``icmp`` or ``fcmp``."""
        return self.assign("i1", a.lanes, f"{instruction} {a.type} {a.text}, {b.text}")

    def convert(self, instruction: str, a: Lanes, element: str) -> Lanes:
        """``instruction a to type``."""
        if a.element == element:
            return a
        result = vector_type(element, a.lanes)
        return self.assign(element, a.lanes, f"{instruction} {a} to {result}")

    def select(self, condition: Lanes, yes: Lanes, no: Lanes) -> Lanes:
        """One of two values."""
        return self.assign(yes.element, yes.lanes, f"select {condition}, {yes}, {no}")

    def intrinsic(self, name: str, *operands: Lanes, element: str | None = None) -> Lanes:
        """``llvm.name`` of operands of one type."""
        first = operands[0]
        result = vector_type(element or first.element, first.lanes)
        suffix = type_suffix(first)
        if element is not None and element != first.element:
            suffix = type_suffix(Lanes("", element, first.lanes)) + "." + suffix
        full = f"@llvm.{name}.{suffix}"
        types = ", ".join(operand.type for operand in operands)
        self.declarations.add(f"declare {result} {full}({types})")
        arguments = ", ".join(map(str, operands))
        return self.assign(
            element or first.element, first.lanes, f"call {result} {full}({arguments})"
        )

    def splat(self, value: Lanes, lanes: int) -> Lanes:
        """A scalar in every lane."""
        if value.lanes == lanes:
            return value
        if not value.text.startswith("%"):
            return constant_vector(value, lanes)
        vector = vector_type(value.element, lanes)
        first = self.assign(value.element, lanes, f"insertelement {vector} poison, {value}, i64 0")
        return self.assign(
            value.element,
            lanes,
            f"shufflevector {first}, {vector} poison, <{lanes} x i32> zeroinitializer",
        )


def transpose_square(b: Builder, rows: list[Lanes]) -> list[Lanes]:
    """The columns of a square of n vectors of n lanes (n a power of two), in log n rounds."""
    rows = list(rows)
    count = len(rows)
    half = count // 2
    while half:
        for k in range(count):
            if k & half:
                continue
            upper, lower = rows[k], rows[k + half]
            first = [c if not c & half else count + c - half for c in range(count)]
            second = [c + half if not c & half else count + c for c in range(count)]
            rows[k] = _shuffle(b, upper, lower, first)
            rows[k + half] = _shuffle(b, upper, lower, second)
        half //= 2
    return rows


def _shuffle(b: Builder, x: Lanes, y: Lanes, lanes: list[int]) -> Lanes:
    numbers = ", ".join(f"i32 {lane}" for lane in lanes)
    mask = f"<{len(lanes)} x i32> <{numbers}>"
    return b.assign(x.element, len(lanes), f"shufflevector {x}, {y}, {mask}")


def constant_vector(value: Lanes, lanes: int) -> Lanes:
    """A literal in every lane."""
    if lanes == 1:
        return value
    return Lanes(f"splat ({value.element} {value.text})", value.element, lanes)


def type_suffix(value: Lanes) -> str:
    """How an intrinsic's name spells a type: ``v8f32``."""
    scalar = {"float": "f32", "double": "f64", "half": "f16"}.get(value.element, value.element)
    if scalar == POINTER:
        scalar = "p0"
    return scalar if value.lanes == 1 else f"v{value.lanes}{scalar}"

"""Tiles of a matrix unit in LLVM: 16 rows of 64 bytes, which one instruction multiplies.

    sums (16 × 16 words) += left (16 rows × 16 words) · right (16 words of k × 16 columns)

AMX has eight tiles, which are configured when a kernel begins and released when it ends. Where the
unit is emulated, tiles are memory on the stack, and each instruction is a function over it: kernels
for a matrix unit then run, and are tested, on any processor.
"""

from __future__ import annotations

from monograph.targets.cpu.llvm.assembly import INDEX, Builder, Lanes
from monograph.targets.cpu.machine import TileUnit
from monograph.targets.cpu.nests.loop_nest import TILE_ROWS, TILE_WORDS

TILES = 8
TILE_BYTES = TILE_ROWS * TILE_WORDS * 4
_ROW_BYTES = TILE_WORDS * 4
_CONFIGURATION = bytes(
    (1, 0, *(0,) * 14) + (_ROW_BYTES, 0) * TILES + (0,) * 16 + (TILE_ROWS,) * TILES + (0,) * 8
)
"""Palette 1, and all tiles as large as they can be: bytes of a row, then rows."""
_DECLARED = {
    "ldtilecfg": "ptr",
    "tilerelease": "",
    "tilezero": "i8",
    "tileloadd64": "i8, ptr, i64",
    "tdpbusd": "i8, i8, i8",
    "tilestored64": "i8, ptr, i64",
}


class TileInstructions:
    """Writes the instructions of a matrix unit; tiles are numbers."""

    def __init__(self, unit: TileUnit) -> None:
        assert unit is not TileUnit.NONE, "only a processor with a matrix unit multiplies tiles"
        self.unit = unit
        self.memory = ""

    def configure(self, b: Builder) -> None:
        """Say how large tiles are, before anything else."""
        if self.unit is TileUnit.EMULATED:
            self.memory = b.function.name("tiles")
            b.line(f"{self.memory} = alloca [{TILES * TILE_BYTES} x i8], align 64")
            b.declarations.add(_EMULATED)
            return
        text = "".join(f"\\{byte:02X}" for byte in _CONFIGURATION)
        constant = f'@tile_configuration = internal constant [64 x i8] c"{text}", align 64'
        b.declarations.add(constant)
        self._call(b, "ldtilecfg", "ptr @tile_configuration")

    def release(self, b: Builder) -> None:
        """Give the tiles back: a processor that holds some is slower to switch tasks."""
        if self.unit is TileUnit.AMX:
            self._call(b, "tilerelease")

    def zero(self, b: Builder, tile: int) -> None:
        """Let a tile hold zeros."""
        self._call(b, "tilezero", self._tile(b, tile))

    def load(self, b: Builder, tile: int, address: Lanes, stride: int) -> None:
        """Fill a tile from rows that lie so many bytes apart."""
        self._call(b, "tileloadd64", self._tile(b, tile), str(address), f"i64 {stride}")

    def multiply(self, b: Builder, sums: int, left: int, right: int) -> None:
        """Add the products of two tiles: unsigned bytes times signed ones, four to a word."""
        self._call(b, "tdpbusd", *(self._tile(b, each) for each in (sums, left, right)))

    def store(self, b: Builder, tile: int, address: Lanes, stride: int) -> None:
        """Store a tile in rows that lie so many bytes apart."""
        self._call(b, "tilestored64", self._tile(b, tile), str(address), f"i64 {stride}")

    def _tile(self, b: Builder, number: int) -> str:
        if self.unit is TileUnit.AMX:
            return f"i8 {number}"
        place = f"getelementptr i8, ptr {self.memory}, i64 {number * TILE_BYTES}"
        return str(b.assign("ptr", 1, place))

    def _call(self, b: Builder, name: str, *operands: str) -> None:
        if self.unit is TileUnit.EMULATED:
            b.line(f"call void @emulated_{name}({', '.join(operands)})")
            return
        b.declarations.add(f"declare void @llvm.x86.{name}({_DECLARED[name]})")
        b.line(f"call void @llvm.x86.{name}({', '.join(operands)})")


def _copy_rows(name: str, source: str, target: str) -> str:
    """A function that copies the rows of a tile: one of both lies in rows of its own."""
    return f"""
define internal void @emulated_{name}(ptr %tile, ptr %rows, i64 %stride) noinline {{
entry:
  br label %next
next:
  %row = phi i64 [ 0, %entry ], [ %following, %next ]
  %inside = mul i64 %row, {_ROW_BYTES}
  %tile.row = getelementptr i8, ptr %tile, i64 %inside
  %apart = mul i64 %row, %stride
  %rows.row = getelementptr i8, ptr %rows, i64 %apart
  %taken = load <{TILE_WORDS} x i32>, ptr {source}, align 1
  store <{TILE_WORDS} x i32> %taken, ptr {target}, align 1
  %following = add i64 %row, 1
  %again = icmp slt i64 %following, {TILE_ROWS}
  br i1 %again, label %next, label %done
done:
  ret void
}}"""


_WORDS = f"<{TILE_WORDS} x i32>"
_PRODUCTS = "".join(
    f"""
  %shifted.{byte} = lshr i32 %word, {8 * byte}
  %left.{byte} = and i32 %shifted.{byte}, 255
  %first.{byte} = insertelement {_WORDS} poison, i32 %left.{byte}, i64 0
  %many.{byte} = shufflevector {_WORDS} %first.{byte}, {_WORDS} poison, {_WORDS} zeroinitializer
  %high.{byte} = shl {_WORDS} %columns, splat (i32 {24 - 8 * byte})
  %right.{byte} = ashr {_WORDS} %high.{byte}, splat (i32 24)
  %product.{byte} = mul {_WORDS} %many.{byte}, %right.{byte}
  %sum.{byte + 1} = add {_WORDS} %sum.{byte}, %product.{byte}"""
    for byte in range(4)
)
_EMULATED = f"""
define internal void @emulated_tilezero(ptr %tile) noinline {{
  store [{TILE_BYTES} x i8] zeroinitializer, ptr %tile, align 64
  ret void
}}
{_copy_rows("tileloadd64", "%rows.row", "%tile.row")}
{_copy_rows("tilestored64", "%tile.row", "%rows.row")}
define internal void @emulated_tdpbusd(ptr %sums, ptr %left, ptr %right) noinline {{
entry:
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %following, %next ]
  %row = udiv i64 %number, {TILE_WORDS}
  %step = urem i64 %number, {TILE_WORDS}
  %word.place = getelementptr i32, ptr %left, i64 %number
  %word = load i32, ptr %word.place, align 4
  %right.place = getelementptr {_WORDS}, ptr %right, i64 %step
  %columns = load {_WORDS}, ptr %right.place, align 64
  %sum.place = getelementptr {_WORDS}, ptr %sums, i64 %row
  %sum.0 = load {_WORDS}, ptr %sum.place, align 64{_PRODUCTS}
  store {_WORDS} %sum.4, ptr %sum.place, align 64
  %following = add i64 %number, 1
  %again = icmp slt i64 %following, {TILE_ROWS * TILE_WORDS}
  br i1 %again, label %next, label %done
done:
  ret void
}}"""


def tile_address(base: str, offset: Lanes, b: Builder) -> Lanes:
    """Where a word lies."""
    return b.assign("ptr", 1, f"getelementptr i32, ptr {base}, {offset}")


def advance(b: Builder, offset: Lanes, distance: int) -> Lanes:
    """An offset so many words further on."""
    return b.binary("add", offset, Lanes(str(distance), INDEX)) if distance else offset

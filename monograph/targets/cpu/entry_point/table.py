"""The address table of the entry point's functions, and their check for interrupts.

The table has the address of every slot, then the value of every symbolic size, then the address of
a function to call back and that of the call's watch (``interrupts``).
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.dims import Symbol
from monograph.targets.cpu.entry_point.interrupts import LOOK, PACE_WORDS, STRIDE
from monograph.targets.cpu.llvm.assembly import Builder, Function, Lanes


class TableFunction:
    """A function whose ``%slots`` is a table."""

    function: Function
    b: Builder

    def __init__(self, slots: int, sizes: Sequence[Symbol]) -> None:
        self.sizes = {symbol: slots + k for k, symbol in enumerate(sizes)}
        self.callback = slots + len(sizes)
        self.watch = self.callback + 1
        self.depth = 0
        """How many loops the step that is written is in."""
        self.declarations: set[str] = set()

    # Breaking off ---------------------------------------------------------------------------------

    def begin_watch(self) -> None:
        """Give a function that loops a pace of its own: it looks at its first turn.

        The turns that are left have a place of their own, which LLVM keeps in a register.
        """
        self.b.line("%left = alloca i64, align 8")
        self.b.line(f"%pace = alloca [{PACE_WORDS} x i64], align 8")
        self.b.line(f"store [{PACE_WORDS} x i64] zeroinitializer, ptr %pace, align 8")
        self.set_pace()
        self.b.line(f"%watch.place = getelementptr i64, ptr %slots, i64 {self.watch}")
        self.b.line("%watch = load ptr, ptr %watch.place, align 8")

    def enter_loop(self) -> None:
        """A loop that is in no other begins by looking at its first turn, however the last went."""
        if not self.depth:
            self.set_pace()
        self.depth += 1

    def set_pace(self) -> None:
        """Look at the next turn, and at the one after that."""
        self.b.line("store i64 1, ptr %left, align 8")
        stride = self.b.assign("ptr", 1, f"getelementptr i64, ptr %pace, i64 {STRIDE}")
        self.b.line(f"store i64 1, ptr {stride.text}, align 8")

    def is_broken_off(self) -> Lanes:
        """Count a turn, and look if it is time to: whether the call is to be broken off."""
        function = self.function
        before = self.b.assign("i64", 1, "load i64, ptr %left, align 8")
        left = self.b.binary("sub", before, Lanes("1", "i64"))
        self.b.line(f"store {left}, ptr %left, align 8")
        look, turn = function.block("look"), function.block("turn")
        counting = self.b.block.label
        due = self.b.compare("icmp sle", left, Lanes("0", "i64"))
        self.b.line(f"br {due}, label %{look.label}, label %{turn.label}")
        self.b.block = function.place(look)
        found = self.look()
        turns = self.b.assign("i64", 1, "load i64, ptr %pace, align 8")
        self.b.line(f"store {turns}, ptr %left, align 8")
        looking = self.b.block.label
        self.b.line(f"br label %{turn.label}")
        self.b.block = function.place(turn)
        return self.b.assign(
            "i1", 1, f"phi i1 [ false, %{counting} ], [ {found.text}, %{looking} ]"
        )

    def look(self) -> Lanes:
        """Look now: whether the call is to be broken off."""
        self.declarations.add(f"declare i32 @{LOOK}(ptr, ptr)")
        found = self.b.assign("i32", 1, f"call i32 @{LOOK}(ptr %watch, ptr %pace)")
        return self.b.compare("icmp ne", found, Lanes("0", "i32"))

    # Values ---------------------------------------------------------------------------------------

    def return_if(self, condition: Lanes, code: int) -> None:
        """Return this code."""
        function = self.function
        bad, good = function.block("failed"), function.block("fine")
        self.b.line(f"br {condition}, label %{bad.label}, label %{good.label}")
        self.b.block = function.place(bad)
        self.b.line(f"ret i32 {code}")
        self.b.block = function.place(good)

    def store_argument(self, k: int, value: Lanes | str) -> None:
        """Put a value where the kernel finds it."""
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %arguments, i64 {k}")
        self.b.line(f"store {value}, ptr {place.text}, align 8")

    def word(self, number: int) -> Lanes:
        """An entry of the table."""
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %slots, i64 {number}")
        return self.b.assign("i64", 1, f"load i64, ptr {place.text}, align 8")

    def slot(self, number: int) -> Lanes:
        """A slot's address, as a number."""
        return self.word(number)

    def pointer(self, number: int) -> str:
        """A slot's address, as a pointer."""
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %slots, i64 {number}")
        return self.b.assign("ptr", 1, f"load ptr, ptr {place.text}, align 8").text

    def truth(self, slot: int) -> Lanes:
        """A bool in a slot."""
        raw = self.b.assign("i8", 1, f"load i8, ptr {self.pointer(slot)}, align 1")
        return self.b.compare("icmp ne", raw, Lanes("0", "i8"))

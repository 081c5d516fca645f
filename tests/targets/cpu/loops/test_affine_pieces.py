"""What a kernel visits is cut where its formula changes or its position is divided."""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.ir.dims import FloorDiv, Mod, SymbolicDim
from monograph.kernel.expr import Apply, Index
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.loops.affine_pieces import MAX_PIECES, cut_kernel
from tests.kernel.build import axes, flat


def cut(function: Any, *types: str) -> list[Kernel]:
    return cut_kernel(flat(function, *types))


def conditions(kernel: Kernel) -> list[str]:
    return [x.function for x in kernel.expressions() if isinstance(x, Apply)]


def test_a_concatenation_is_a_copy_of_each_operand() -> None:
    parts = cut(lambda a, b: F.concat([a, b], 1), "f32[4, 10, 3]", "f32[4, 5, 3]")
    assert [axes(part) for part in parts] == [["4", "30"], ["4", "15"]]
    assert [conditions(part) for part in parts] == [[], []]
    assert str(parts[1]).endswith("o0[45*i0+i2+30] = b1[15*i0+i2]\n")


def test_a_concatenation_of_symbolic_sizes_is_cut_as_well() -> None:
    parts = cut(lambda a, b: F.concat([a, b], 0), "f32[n, 8]", "f32[m, 8]")
    assert [axes(part) for part in parts] == [["8*n"], ["8*m"]]
    assert [conditions(part) for part in parts] == [[], []]


def test_borders_along_the_last_axis_stay_for_the_loops() -> None:
    (whole,) = cut(lambda a, b: F.concat([a, b], 1), "f32[40, 3]", "f32[40, 5]")
    assert "where" in conditions(whole)


def test_what_gains_nothing_stays_whole() -> None:
    kernel = flat(lambda x: F.pad(x, [2, 3], [2, 3]), "f32[20, 30]")
    assert cut_kernel(kernel) == [kernel]


def test_too_many_pieces_are_left_as_they_are() -> None:
    count = MAX_PIECES + 1
    types = ["f32[2, 4]"] * count
    assert len(cut(lambda *parts: F.concat(list(parts), 0), *types)) == 1


def test_a_divided_position_is_two_axes() -> None:
    def windows(x: Any) -> Any:
        parts = F.transpose(F.reshape(x, (8, 7, 8, 7, 96)), (0, 2, 1, 3, 4))
        return F.exp(F.reshape(parts, (64, 49, 96)))

    (kernel,) = cut(windows, "f32[56, 56, 96]")
    assert axes(kernel) == ["8", "8", "7", "672"]
    positions = [x.dim for x in kernel.expressions() if isinstance(x, Index)]
    atoms = [
        atom
        for dim in positions
        if isinstance(dim, SymbolicDim)
        for factors, _ in dim.terms()
        for atom in factors
    ]
    assert not any(isinstance(atom, FloorDiv | Mod) for atom in atoms)


def test_a_position_that_stays_below_the_divisor_is_not_divided() -> None:
    def turned(x: Any) -> Any:
        (size, _) = x.shape
        row = F.reshape(F.cos(F.transpose(F.cast(-x, "f16"), (1, 0))), (size,))
        return F.reshape(F.log2(row), (1, size))

    (kernel,) = cut(turned, "i64[n, 1]")
    assert not [x for x in kernel.expressions() if isinstance(x, Index) and "%" in str(x.dim)]


def test_a_reduction_is_not_cut() -> None:
    kernel = flat(lambda a, b: F.sum(F.concat([a, b], 0), 1), "f32[4, 8]", "f32[5, 8]")
    assert cut_kernel(kernel) == [kernel]


def test_stacked_arrays_are_stored_in_pairs() -> None:
    (pairs,) = cut(lambda a, b: F.stack([a, b], -1), "f32[30, 10]", "f32[30, 10]")
    assert axes(pairs) == ["300"]
    assert conditions(pairs) == []
    assert len(pairs.stores) == 2


def test_an_element_that_is_repeated_twice_is_read_once() -> None:
    (pairs,) = cut(lambda a: F.reshape(F.expand(a, (30, 2)), (60,)), "f32[30, 1]")
    assert axes(pairs) == ["30"]
    assert len(pairs.stores) == 2


def test_pairs_that_lie_apart_stay_a_loop() -> None:
    (whole,) = cut(lambda a: F.transpose(a, (1, 0)) + 1.0, "f32[2, 3]")
    assert len(whole.stores) == 1

"""Products of small integers by micro-kernels: which there are, in bounds, and what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monograph import functional as F
from monograph.ir.types import i16, i32
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Apply
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.nests.verify import verify_nest
from monograph.targets.cpu.products.in_words import Words, by_micro_kernel
from monograph.targets.cpu.products.packing import panels_of, rows_of
from monograph.targets.cpu.products.product import product_nest
from monograph.targets.cpu.products.tiles import Reading, Segment, Tiling
from monograph.targets.micro_kernel import ONE_STEP, PAIRS, MicroKernel
from tests.kernel.build import flat

TILING = Tiling((Segment(0, 4, 3),), 4, 8, 0, 2, 2, Reading.PACKED, Reading.PACKED)


def contraction(function: Any, *types: str) -> Contraction:
    found = as_contraction(flat(function, *types))
    assert found is not None
    return found


def product_of(*types: str) -> Contraction:
    return contraction(lambda a, b: F.cast(a, "i32") @ F.cast(b, "i32"), *types)


def in_pairs(product: Contraction, *small: str, is_weight: bool = False) -> Words | None:
    return by_micro_kernel(product, PAIRS, small, is_weight=is_weight)


def words_of(product: Contraction) -> list[str]:
    return [buffer.name for buffer in product.kernel.inputs if buffer.dtype is i32]


@pytest.mark.parametrize(
    ("chip", "types", "expected"),
    [
        ("x86-64-vnni", ("u8[12, 16]", "i8[16, 21]"), ("dot_u8_i8", 4)),
        ("aarch64-dotprod", ("u8[12, 16]", "i8[16, 21]"), ("dot_i8_i8", 4)),
        ("x86-64-vnni", ("u8[12, 16]", "u8[16, 21]"), ("multiply_pairs", 2)),
        ("riscv64", ("u8[12, 16]", "i8[16, 21]"), ("multiply_pairs", 2)),
        ("x86-64-vnni", ("i32[12, 16]", "i8[16, 21]"), ("multiply", 1)),
        ("x86-64-vnni", ("u16[12, 16]", "i8[16, 21]"), ("multiply", 1)),
    ],
)
def test_the_first_instruction_that_takes_the_operands_is_chosen(
    chip: str, types: Any, expected: tuple[str, int]
) -> None:
    tried = (
        by_micro_kernel(product_of(*types), micro, is_weight=True)
        for micro in machine_named(chip).micro_kernels
    )
    found = next(each for each in tried if each is not None)
    assert (found.micro.function, found.micro.steps) == expected
    body = found.contraction.reduction.body
    assert isinstance(body, Apply) and body.function == expected[0]
    assert found.contraction.size(found.contraction.k) == 16 // expected[1]


def test_floats_are_multiplied_a_step_at_a_time() -> None:
    product = contraction(lambda a, b: a @ b, "f32[12, 16]", "f32[16, 21]")
    taken = [each for each in (PAIRS, *ONE_STEP) if by_micro_kernel(product, each) is not None]
    assert taken == [ONE_STEP[0]]


def test_no_instruction_adds_up_bytes_that_wrap() -> None:
    product = contraction(lambda a, b: a @ b, "i8[12, 16]", "i8[16, 21]")
    micro_kernels = machine_named("x86-64-vnni").micro_kernels
    assert not any(by_micro_kernel(product, each, is_weight=True) for each in micro_kernels)


@pytest.mark.parametrize("depth", [12, 13])
@pytest.mark.parametrize("steps", [2, 4])
def test_the_loops_of_words_stay_in_bounds(depth: int, steps: int) -> None:
    (micro,) = (
        each for each in machine_named("aarch64-dotprod").micro_kernels if each.steps == steps
    )
    product = product_of(f"u8[12, {depth}]", f"i8[{depth}, 21]")
    found = by_micro_kernel(product, micro, is_weight=steps == 4)
    assert found is not None
    words = found.contraction
    assert words.size(words.k) == -(-depth // steps)
    rows, panels = rows_of(words).outputs[0], panels_of(words, 8).outputs[0]
    nest = product_nest(words, TILING, rows, panels, GENERIC.product)
    assert verify_nest(nest) > 12 * 12 // steps * 21


def test_words_of_bytes_are_made_of_weights_alone() -> None:
    (micro, *_) = machine_named("x86-64-vnni").micro_kernels
    assert by_micro_kernel(product_of("u8[12, 16]", "i8[16, 21]"), micro) is None


def test_bytes_of_the_other_sign_are_moved_and_made_up_for() -> None:
    (micro, *_) = machine_named("aarch64-dotprod").micro_kernels
    same = by_micro_kernel(product_of("i8[12, 16]", "i8[16, 21]"), micro, is_weight=True)
    other = by_micro_kernel(product_of("u8[12, 16]", "i8[16, 21]"), micro, is_weight=True)
    assert same is not None and other is not None
    assert len(same.more) == 1 and len(other.more) == 2
    sums = other.more[1]
    assert isinstance(sums, Kernel) and sums.outputs[0].shape == (21,)


def test_bytes_on_the_right_can_be_stored_as_they_are() -> None:
    found = in_pairs(product_of("u8[12, 12]", "i8[12, 21]"))
    assert found is not None and isinstance(found.contraction.right, Apply)
    assert found.contraction.right.function == "widen_pairs"
    assert found.contraction.right.operands[0].dtype is i16


def test_words_of_unknown_size_are_left_alone_unless_they_are_known_to_be_small() -> None:
    words = contraction(lambda a, b: a @ F.cast(b, "i32"), "i32[12, 12]", "i8[12, 21]")
    assert in_pairs(words) is None
    assert in_pairs(words, *words_of(words)) is not None


def windows(channels: int, dtype: str = "i32") -> Contraction:
    """A product whose left operand is the 3 × 3 windows of an image with its channels last."""
    shape = f"{dtype}[6, 6, {channels}]"

    def convolved(image: Any, weight: Any) -> Any:
        turned = F.transpose(F.cast(image, "i32"), (2, 0, 1))
        return F.transpose(F.conv(F.unsqueeze(turned, 0), F.cast(weight, "i32")), (0, 2, 3, 1))

    return contraction(convolved, shape, f"i8[16, {channels}, 3, 3]")


@pytest.mark.parametrize("dtype", ["i32", "u8", "i8"])
def test_an_image_is_read_in_words_of_two_channels(dtype: str) -> None:
    found = windows(4, dtype)
    made = in_pairs(found, *words_of(found), is_weight=True)
    assert made is not None
    (copy,) = made.more
    assert isinstance(copy, Kernel) and copy.outputs[0].dtype is i16
    paired = made.contraction
    assert paired.size(paired.k) == 3 * 3 * 4 // 2
    panels = panels_of(paired, 8).outputs[0]
    tiling = replace(TILING, rows=(Segment(0, 4, 4),), left=Reading.IN_PLACE)
    assert verify_nest(product_nest(paired, tiling, None, panels, GENERIC.product)) > 16 * 16 * 18


def test_an_odd_number_of_channels_is_left_alone() -> None:
    found = windows(3)
    assert in_pairs(found, *words_of(found), is_weight=True) is None


def test_a_micro_kernel_says_what_it_does() -> None:
    assert str(PAIRS) == "multiply_pairs: 2 steps of k, i16 × i16"
    assert isinstance(machine_named("x86-64-vnni").micro_kernels[0], MicroKernel)

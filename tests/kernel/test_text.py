"""Kernels as text: what people read, and what caches hash."""

from __future__ import annotations

from textwrap import dedent

from monograph import functional as F
from monograph.ir.dims import Symbol
from monograph.kernel.kernel import Kernel
from monograph.kernel.text import dim_text
from tests.kernel.build import flat, kernel_of


def test_a_kernel_before_and_after_flattening() -> None:
    kernel = kernel_of(lambda x: F.sum(x, axis=1) + 1.0, "f32[4, 8]")
    assert str(kernel) == dedent("""\
        kernel sum_add(b0: f32[4, 8]) -> (o0: f32[4]):
          for i0 < 4, i1 < 8:
            o0[i0] = (sum(r0_0 < 8: b0[i0, r0_0]) + 1.0:f32)
    """)
    assert str(flat(lambda x: F.sum(x, axis=1) + 1.0, "f32[4, 8]")) == dedent("""\
        kernel sum_add(b0: f32[32]) -> (o0: f32[4]):
          for i0 < 4:
            o0[i0] = (sum(r0_0 < 8: b0[8*i0+r0_0]) + 1.0:f32)
    """)


def test_what_is_used_twice_is_named() -> None:
    text = str(flat(lambda x: F.exp(x) * F.exp(x), "f32[4]"))
    assert text.endswith("    v0 = exp(b0[i0])\n    o0[i0] = (v0 * v0)\n")


def test_strides_are_part_of_the_text() -> None:
    text = str(kernel_of(lambda x: F.exp(x), "f32[4, 8]", strides={0: (16, 2)}))
    assert "b0: f32[4, 8] strides (16, 2)" in text


def test_a_digest_does_not_depend_on_the_name_but_on_all_else() -> None:
    kernel = flat(lambda x: F.exp(x), "f32[4]")
    renamed = Kernel("other", kernel.inputs, kernel.outputs, kernel.axes, kernel.stores)
    assert renamed.digest == kernel.digest
    assert flat(lambda x: F.exp(x), "f32[5]").digest != kernel.digest
    assert flat(lambda x: F.sin(x), "f32[4]").digest != kernel.digest
    assert flat(lambda x: F.exp(x), "f64[4]").digest != kernel.digest


def test_loop_variables_lose_their_mark_and_sizes_keep_their_names() -> None:
    i, rows, mine = Symbol("_i0", 0, 7), Symbol("_i_row", 0, 7), Symbol("max_items", 1)
    assert dim_text(3 * i + rows) == "3*i0+i_row"
    assert dim_text(mine * i) == "i0*max_items"


def test_sizes_whose_names_differ_only_by_a_mark_are_different_kernels() -> None:
    one = flat(lambda x: F.exp(x), "f32[n_rows]")
    other = flat(lambda x: F.exp(x), "f32[nrows]")
    assert one.digest != other.digest

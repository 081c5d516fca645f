"""What is known of kernels comes back as it was stored."""

from __future__ import annotations

import json

import pytest

from monograph.errors import MonographError
from monograph.runtime.bundle import Json
from monograph.runtime.kernel_summary import KernelNote, read_notes, write_notes

FIRST = KernelNote("k0_add", "pointwise", "3×4", "vectors", ("%y = add(%x)",), ("together",))
SECOND = KernelNote("k1_add", "pointwise", "3×4", "rows", ("%y = add(%x)",), ("together",))
THIRD = KernelNote("k2_sum", "reduction", "3", "rows", ("%z = sum(%y)",), (), ("apart",))


def test_notes_come_back() -> None:
    written = json.loads(json.dumps(write_notes([FIRST, SECOND, THIRD])))
    assert read_notes(written) == (FIRST, SECOND, THIRD)


def test_kernels_of_one_group_say_its_reasons_once() -> None:
    assert json.dumps(write_notes([FIRST, SECOND])).count("together") == 1


@pytest.mark.parametrize(
    "damaged",
    [[[]], [["k", "kind", "space", "how", 0]], [["k", "kind", "space", "how", [[], []]]], 3],
)
def test_damaged_notes_are_refused(damaged: Json) -> None:
    with pytest.raises(MonographError):
        read_notes(damaged)

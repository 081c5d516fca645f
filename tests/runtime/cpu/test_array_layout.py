"""The fields of arrays: found where they are, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monograph.runtime.cpu import array_layout
from monograph.runtime.cpu.array_layout import _is_read


def test_the_layout_of_this_numpy_is_known() -> None:
    assert array_layout.array_layout() is not None


def test_another_layout_is_noticed() -> None:
    known = array_layout.array_layout()
    assert known is not None
    array = np.ones((2, 3), np.float32)
    assert _is_read(array, known)
    for field in ("data", "axes", "sizes", "strides", "dtype"):
        moved = replace(known, **{field: getattr(known, field) + 8})
        if field == "sizes":
            moved = replace(known, sizes=known.strides)
        elif field == "strides":
            moved = replace(known, strides=known.sizes)
        assert not _is_read(array, moved), field

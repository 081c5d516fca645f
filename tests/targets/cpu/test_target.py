"""The processor's lowering passes keep the composites that have formulas, and no others."""

from __future__ import annotations

import pytest

from monograph.ir.op import registry
from monograph.kernel.lower import is_scalar_function
from monograph.passes.base import make_pass
from monograph.targets.cpu.target import FORMULAS


def test_composites_with_a_formula_are_kept() -> None:
    found = {
        op.name
        for op in registry().values()
        if op.__module__.startswith("monograph.")
        and op.is_composite()
        and is_scalar_function(op)
        and not op.is_lowerable()
    }
    assert found == set(FORMULAS)


def test_an_earlier_name_finds_a_pass_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="tile_batch"):
        assert make_pass("visit_images{processors=2}").name == "tile_batch"

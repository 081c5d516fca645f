"""The processor's lowering passes keep the composites that have formulas, and no others."""

from __future__ import annotations

import pytest

from monograph.ir.op import registry
from monograph.kernel.lower import is_scalar_function
from monograph.passes.base import make_pass
from monograph.targets.cpu.target import FORMULAS
from monograph.targets.names import resolve_target


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


def test_threads_are_part_of_the_description_of_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def described(name: str) -> tuple[str, str]:
        target = resolve_target(name)
        return target.description, str(target.lowering())

    names = ("cpu", "cpu:aarch64")
    before = {name: described(name) for name in names}
    monkeypatch.setattr("monograph.targets.cpu.machine.processor_count", lambda: 97)
    after = {name: described(name) for name in names}
    assert after["cpu:aarch64"] == before["cpu:aarch64"]
    (old_key, old_passes), (new_key, new_passes) = before["cpu"], after["cpu"]
    assert new_key != old_key and "97" in new_key
    assert new_passes != old_passes and "97" in new_passes


def test_an_earlier_name_finds_a_pass_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="tile_batch"):
        assert make_pass("visit_images{processors=2}").name == "tile_batch"

"""Each operation of StableHLO's specification is read and computes what XLA does, or is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
from jaxlib.mlir.dialects import stablehlo

import monograph
from monograph.errors import UnsupportedError
from monograph.exporters.runtimes import run_stablehlo
from monograph.frontends.stablehlo import from_stablehlo
from monograph.frontends.stablehlo.operation import CONVERTERS
from tests.frontends.stablehlo_operations import (
    DEPRECATED,
    MODULES,
    REFUSED,
    inputs_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "stablehlo-operations.md"


def dialect() -> set[str]:
    classes = (getattr(stablehlo, name) for name in dir(stablehlo))
    names = {each.OPERATION_NAME for each in classes if hasattr(each, "OPERATION_NAME")}
    return {name.removeprefix("stablehlo.") for name in names} - DEPRECATED


@pytest.mark.parametrize("name", MODULES)
def test_an_operation_computes_what_xla_does(name: str) -> None:
    text = MODULES[name]
    arrays = inputs_of(text)
    graph = from_stablehlo(text)
    expected = run_stablehlo(text, arrays)
    compiled = monograph.compile(graph, cache=False)(*arrays)
    for mine, theirs in zip(compiled, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("all_gather", "dense<0> : tensor<1x1xi64>", "dense<[[0, 1]]> : tensor<1x2xi64>"),
        ("collective_permute", "dense<[[0, 0]]>", "dense<[[0, 1]]>"),
    ],
)
def test_a_collective_of_several_devices_is_refused(name: str, one: str, two: str) -> None:
    text = MODULES[name].replace(one, two)
    assert text != MODULES[name]
    with pytest.raises(UnsupportedError, match=f"{name} of several devices"):
        from_stablehlo(text)


def test_every_operation_of_the_specification_is_read_or_has_a_reason() -> None:
    assert dialect() == MODULES.keys() | REFUSED.keys()
    assert not MODULES.keys() & REFUSED.keys()
    assert not {name for name in REFUSED if f"stablehlo.{name}" in CONVERTERS}


def test_the_page_lists_them() -> None:
    rows = dict.fromkeys(sorted(MODULES), "yes") | REFUSED
    lines = [f"| `{name}` | {rows[name]} |" for name in sorted(rows)]
    assert "\n".join(lines) in PAGE.read_text()

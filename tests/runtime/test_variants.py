"""Sizes that come back get a program of their own, which no call waits for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.ir.interpret import interpret
from monograph.runtime.compile import Options, compile_graph
from monograph.runtime.compiled import Executable
from monograph.runtime.variants import State, Variants, share_panels

WEIGHT = np.random.default_rng(0).normal(size=(48, 40)).astype(np.float32)


def function(x: Any) -> Any:
    return F.softmax(x @ WEIGHT, -1) + 1.0


def compiled(most: int = 4) -> Any:
    return monograph.compile(function, "f32[n, 48]", variants=most)


def draw(rows: int) -> Any:
    return np.random.default_rng(rows).normal(size=(rows, 48)).astype(np.float32)


def variants_of(model: Any) -> Variants:
    found = model.executable.native.variants
    assert isinstance(found, Variants)
    return found


def test_sizes_that_come_twice_get_a_variant_which_later_calls_run() -> None:
    model = compiled()
    variants = variants_of(model)
    want = interpret(model.executable.graph, [draw(5)])[0]
    for _ in range(2):
        np.testing.assert_allclose(model(draw(5)), want, rtol=1e-5)
    assert variants.wait(60)
    variant = variants.ready((5,))
    assert variant is not None and variant.native is not None and variant.native.static
    calls = []
    run = variant.native.run
    variant.native.run = lambda *a: (calls.append(a), run(*a))[1]  # type: ignore[method-assign]
    np.testing.assert_allclose(model(draw(5)), want, rtol=1e-5)
    assert len(calls) == 1
    for _ in range(4):  # by a built-in function, in the end
        np.testing.assert_allclose(model(draw(5)), want, rtol=1e-5)
    assert variants.ready((6,)) is None


def test_other_sizes_are_served_meanwhile_and_after() -> None:
    model = compiled()
    for rows in (3, 4, 3, 4, 7, 3, 4, 3, 4, 7, 1):
        want = interpret(model.executable.graph, [draw(rows)])[0]
        np.testing.assert_allclose(model(draw(rows)), want, rtol=1e-5)
    assert variants_of(model).wait(60)
    assert {sizes for sizes, each in variants_of(model).states().items()} == {(3,), (4,), (7,)}


def fake(most: int, problem: Exception | None = None) -> tuple[Variants, list[tuple[int, ...]]]:
    """Variants whose compilation only notes that it was asked for."""
    made: list[tuple[int, ...]] = []
    some = compile_graph(monograph.trace(lambda x: x + 1.0, "f32[2]"), Options(cache=False))

    def make(sizes: tuple[int, ...]) -> Executable:
        made.append(sizes)
        if problem is not None:
            raise problem
        return some

    return Variants(most, make), made


def test_no_more_than_so_many_are_kept_and_the_least_recent_one_goes() -> None:
    variants, made = fake(2)
    for size in (1, 2):
        for _ in range(2):
            variants.find((size,))
    assert variants.wait(60)
    assert variants.find((1,)) is not None
    version = variants.version
    for _ in range(2):
        variants.find((3,))
    assert variants.wait(60)
    assert list(variants.states()) == [(1,), (3,)]
    assert variants.version > version  # built-in functions of the one that went are dropped
    assert made == [(1,), (2,), (3,)]


def test_sizes_in_turns_do_not_compile_for_ever() -> None:
    variants, made = fake(2)
    for _ in range(200):
        for size in range(3):
            variants.find((size,))
        assert variants.wait(60)
    assert len(made) < 20


def test_what_cannot_be_compiled_is_not_tried_again() -> None:
    variants, made = fake(2, UnsupportedError("it has no native code"))
    for _ in range(6):
        assert variants.find((1,)) is None
        assert variants.wait(60)
    assert made == [(1,)]
    (variant,) = variants.states().values()
    assert (variant.state, variant.reason) == (State.REFUSED, "it has no native code")


def test_none_are_compiled_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert monograph.compile(function, "f32[n, 48]").executable.native.variants is None
    monkeypatch.setenv("MONOGRAPH_VARIANTS", "3")
    assert variants_of(monograph.compile(function, "f32[n, 48]"))._most == 3
    assert monograph.compile(function, "f32[5, 48]").executable.native.variants is None


def test_a_variant_has_the_weights_that_the_program_was_compiled_with() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(48, 40).eval()
    rows = torch.export.Dim("rows")
    model = monograph.compile(
        module, torch.randn(4, 48), dynamic_shapes=({0: rows},), variants=2, threads=1
    )
    x = torch.randn(9, 48)
    with torch.no_grad():
        want = module(x)
        for parameter in module.parameters():
            parameter.zero_()
        for _ in range(2):
            model(x)
        assert variants_of(model).wait(60)
        assert variants_of(model).ready((9,)) is not None
        torch.testing.assert_close(model(x), want)


def test_packed_weights_that_are_equal_are_held_once() -> None:
    a, b, c = np.ones(64, np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    made = {3: b, 4: c}
    share_panels(made, {7: a})
    assert made[3] is a and made[4] is c


def test_explain_says_which_there_are() -> None:
    model = compiled()
    for _ in range(2):
        model(draw(6))
    assert variants_of(model).wait(60)
    assert "for n = 6: compiled" in str(monograph.explain(model))


def test_a_process_ends_while_a_variant_is_being_compiled() -> None:
    text = """
import numpy as np, monograph
from monograph import functional as F
w = [np.ones((64, 64), np.float32) * k for k in range(40)]
def f(x):
    for each in w:
        x = F.softmax(F.tanh(x @ each), -1)
    return x
m = monograph.compile(f, "f32[n, 64]", variants=2, cache=False)
m(np.ones((3, 64), np.float32)); m(np.ones((3, 64), np.float32))
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")

"""Sizes that come back get a program of their own, which no call waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import UnsupportedError
from monograph.ir.interpret import interpret
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.native import Native
from monograph.specialize import background
from monograph.specialize.variants import MAX_PARTS, State, VariantLimit, Variants, equal_panels

WEIGHT = np.random.default_rng(0).normal(size=(48, 40)).astype(np.float32)
BACK = np.ascontiguousarray(WEIGHT.T)


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


def fake(
    most: int, problem: Exception | None = None, limit: VariantLimit | None = None
) -> tuple[Variants, list[tuple[int, ...]]]:
    """Variants whose compilation only notes that it was asked for."""
    made: list[tuple[int, ...]] = []
    some = compile_graph(monograph.trace(lambda x: x + 1.0, "f32[2]"), Options(cache=False))

    def make(sizes: tuple[int, ...]) -> Executable:
        made.append(sizes)
        if problem is not None:
            raise problem
        return some

    return Variants(most, make, limit), made


def step(x: Any, cache: Any) -> Any:
    return F.softmax(F.concat([cache, x @ WEIGHT], 0), -1)


def draw_cache(rows: int) -> Any:
    return np.random.default_rng(rows).normal(size=(rows, 40)).astype(np.float32)


def test_sizes_that_stay_get_a_variant_though_others_never_come_back() -> None:
    model = monograph.compile(step, "f32[n, 48]", "f32[past, 40]", variants=4)
    variants = variants_of(model)
    (n, past) = (each.name for each in model.executable.native.program.sizes)
    assert (n, past) == ("n", "past")

    def check(rows: int, before: int) -> None:
        want = interpret(model.executable.graph, [draw(rows), draw_cache(before)])[0]
        np.testing.assert_allclose(model(draw(rows), draw_cache(before)), want, rtol=1e-5)

    for before in range(5, 15):
        check(1, before)
    assert variants.wait(60)
    assert list(variants.states()) == [(1, None)]
    variant = variants.ready((1, None))
    assert variant is not None and variant.native is not None
    calls: list[Any] = []
    run = variant.native.run
    variant.native.run = lambda *a: (calls.append(a[1]), run(*a))[1]  # type: ignore[method-assign]
    for before in (15, 16, 700):
        check(1, before)
    check(2, 17)
    assert calls == [(15,), (16,), (700,)]
    assert "for some of these sizes" in variants.served_by((1, 18))
    assert "for all sizes" in variants.served_by((2, 18))
    assert "any past" in str(monograph.explain(model))


def test_sizes_that_are_told_apart_by_all_or_nothing_get_none_for_some() -> None:
    variants, made = fake(4)
    for number in range(40):
        variants.find((number, 2 * number))
    for number in range(40):
        variants.find((number % 2, number % 2))
    assert variants.wait(60)
    assert made == [(0, 0), (1, 1)]


def test_variants_for_some_sizes_count_among_those_that_are_kept() -> None:
    variants, made = fake(2)
    for size in (1, 2):
        for _ in range(2):
            variants.find((size, size))
    assert variants.wait(60)
    for number in range(10, 20):
        variants.find((1, number))
    assert variants.wait(60)
    assert made == [(1, 1), (2, 2), (1, None)]
    assert list(variants.states()) == [(2, 2), (1, None)]
    found = variants.find((1, 99))
    assert found is not None and found[1] == (99,)


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


def test_a_fault_of_the_compiler_is_a_warning_and_the_next_variant_is_compiled() -> None:
    variants, made = fake(4, ZeroDivisionError("no such number"))
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError: no such number"):
        for _ in range(3):
            assert variants.find((1,)) is None
            assert variants.wait(60)
    (variant,) = variants.states().values()
    assert variant.state is State.REFUSED and "ZeroDivisionError" in variant.reason
    others, also = fake(4)
    for _ in range(2):
        others.find((2,))
    assert others.wait(60)
    assert (made, also) == ([(1,)], [(2,)])


def test_a_failure_outside_of_a_variant_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def fail() -> None:
        raise ValueError("not a variant's")

    background.submit(fail)
    assert background.wait(60)
    assert [str(each.exc_value) for each in seen] == ["not a variant's"]


def test_calls_from_several_threads_while_a_variant_is_compiled() -> None:
    model = compiled()
    x = draw(11)
    want = interpret(model.executable.graph, [x])[0]
    wrong: list[float] = []

    def call() -> None:
        for _ in range(300):
            wrong.append(float(np.abs(model(x) - want).max()))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(wrong) == 1200 and max(wrong) < 1e-5
    assert variants_of(model).wait(60)
    assert list(variants_of(model).states()) == [(11,)]


def test_parts_of_a_program_share_a_limit() -> None:
    limit = VariantLimit(2)
    parts = [fake(2, limit=limit)[0] for _ in range(MAX_PARTS + 1)]
    for part in parts:
        for size in (1, 2):
            for _ in range(2):
                part.find((size,))
    assert parts[0].wait(60)
    kept = [sizes for part in parts for sizes in part.states()]
    assert len(kept) == 2 * MAX_PARTS
    assert not parts[0].states()  # the least recently used ones


def test_parts_of_a_program_that_calls_complete_have_variants() -> None:
    def chosen(x: Any) -> Any:
        return F.take(F.softmax(x @ WEIGHT, -1), F.squeeze(F.nonzero(x[:, 0] > 0.0), 1), 0) @ BACK

    model = monograph.compile(chosen, "f32[n, 48]", variants=4)
    assert model.executable.stage is not None
    want = interpret(model.executable.graph, [draw(9)])[0]
    for _ in range(3):
        np.testing.assert_allclose(model(draw(9)), want, rtol=1e-5)
        assert background.wait(60)
    found = monograph.explain(model).variants
    assert len(found) == 2
    assert {state for state in found.values()} == {"compiled"}
    np.testing.assert_allclose(model(draw(9)), want, rtol=1e-5)


def test_a_part_has_variants_although_completing_it_made_constants() -> None:
    model = monograph.compile(lambda x: F.unique(F.round(x @ WEIGHT))[0], "f32[n, 48]", variants=4)
    assert model.executable.stage is not None
    for _ in range(3):
        np.testing.assert_allclose(model(draw(5)), np.unique(np.round(draw(5) @ WEIGHT)), atol=1e-5)
        assert background.wait(60)
    assert list(monograph.explain(model).variants.values()) == ["compiled", "compiled"]


def run_python(text: str, **settings: str) -> str:
    """What a process prints, which must end as it should."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **settings},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_new_process_finds_variants_in_the_cache(tmp_path: Path) -> None:
    text = """
import numpy as np, monograph
from monograph import functional as F
from monograph.specialize import background
w = np.ones((64, 64), np.float32)
m = monograph.compile(lambda x: F.softmax(x @ w, -1), "f32[n, 64]", variants=2)
for _ in range(2):
    m(np.ones((3, 64), np.float32))
assert background.wait(60)
print(m.executable.report.cache, m.executable.native.variants.ready((3,)).report.cache)
"""
    settings = {"MONOGRAPH_CACHE": "1", "MONOGRAPH_CACHE_DIR": str(tmp_path)}
    settings["MONOGRAPH_VERIFY"] = "0"  # which compiles afresh
    assert run_python(text, **settings) == "miss miss\n"
    assert run_python(text, **settings) == "hit hit\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_while_a_variant_is_compiled_can_call_and_compile() -> None:
    text = """
import os, warnings
warnings.simplefilter("ignore")
import numpy as np, monograph
from monograph import functional as F
w = [np.ones((64, 64), np.float32) * k for k in range(20)]
def f(x):
    for each in w:
        x = F.softmax(F.tanh(x @ each), -1)
    return x
m = monograph.compile(f, "f32[n, 64]", variants=2, cache=False)
x = np.ones((3, 64), np.float32)
m(x); m(x)
child = os.fork()
if child == 0:
    m(x)
    ok = m.executable.native.variants.wait(100)
    ready = m.executable.native.variants.ready((3,)) is not None
    os._exit(0 if ok and ready else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run_python(text) == "0\n"


def test_none_are_compiled_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert monograph.compile(function, "f32[n, 48]").executable.native.variants is None
    monkeypatch.setenv("MONOGRAPH_VARIANTS", "3")
    assert variants_of(monograph.compile(function, "f32[n, 48]")).most == 3
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
    found = equal_panels({3: b, 4: c}, [{7: a}, {}])
    assert found.keys() == {3} and found[3] is a


def test_variants_hold_their_packed_weights_together() -> None:
    weight = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    program = monograph.compile(
        lambda x: F.tanh(x @ weight) @ weight, "f32[n, 256]", cache=False, variants=3
    )
    natives = []
    for n in (64, 96, 128):
        program.executable.add_variant({"n": n})
        found = variants_of(program).ready((n,))
        assert found is not None and isinstance(found.native, Native)
        natives.append(found.native)
    held = [{a.ctypes.data for a in each.prepared().values()} for each in natives]
    assert held[0] and held[1] & held[0]
    own = [each.pool.owned_bytes for each in natives]
    assert own[1] < own[0] or own[0] < weight.nbytes, own
    x = np.random.default_rng(1).normal(size=(96, 256)).astype(np.float32)
    want = np.tanh(x @ weight) @ weight
    np.testing.assert_allclose(program(x), want, rtol=1e-3, atol=1e-3)


def test_sizes_that_are_rare_among_many_others_get_no_variant() -> None:
    model = compiled()
    for _ in range(3):
        for n in range(2, 22):
            model(draw(n))
    variants = variants_of(model)
    assert variants.wait(60)
    assert not variants.states()
    for _ in range(12):
        model(draw(5))
    assert variants.wait(60)
    assert variants.ready((5,)) is not None


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
    assert run_python(text) == "end\n"

"""The program verifier finds memory that is read after it was overwritten, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import PassError
from monograph.program.arena import ArenaPlan
from monograph.program.code import Code, Launch, SlotKind
from monograph.program.liveness import copies_of
from monograph.program.verify import ProgramVerifier
from monograph.runtime.cpu.native import Native


def chain(x: Any, w: Any) -> Any:
    y = F.layer_norm(x)
    return F.softmax(y @ w, -1) @ w + y


def native_of(function: Any, *types: str) -> Native:
    native = compile_graph(monograph.trace(function, *types), Options(cache=False)).native
    assert isinstance(native, Native)
    return native


def verify(native: Native, program: Code, plan: ArenaPlan) -> None:
    copies = copies_of(program, {}, native.threads)
    ProgramVerifier(program, native.requests).verify({}, plan, copies)


def test_programs_as_they_are_compiled_pass() -> None:
    native = native_of(chain, "f32[32, 64]", "f32[64, 64]")
    verify(native, native.program, native.plan_for(()))


def test_values_that_overlap_while_both_are_needed_are_found() -> None:
    native = native_of(chain, "f32[32, 64]", "f32[64, 64]")
    plan = native.plan_for(())
    with pytest.raises(PassError, match="overlaps"):
        verify(native, native.program, replace(plan, offsets=(0,) * len(plan.offsets)))


def test_a_step_that_reads_before_anybody_wrote_is_found() -> None:
    native = native_of(chain, "f32[32, 64]", "f32[64, 64]")
    program = native.program
    late = replace(program, steps=(*program.steps[1:], program.steps[0]))
    with pytest.raises(PassError, match="nothing was written to it"):
        verify(native, late, native.plan_for(()))


def test_an_output_over_an_input_that_is_not_declared_is_found() -> None:
    """The plan shares memory as the launches allowed; then they do not."""
    native = native_of(
        lambda x, w: F.cumsum(F.exp(F.cumsum(x, axis=0) + w), axis=0), *["f32[64, 64]"] * 2
    )
    program, plan = native.program, native.plan_for(())
    assert any(each is not None for each in plan.taken_over)
    steps = tuple(
        replace(step, in_place=()) if isinstance(step, Launch) else step for step in program.steps
    )
    with pytest.raises(PassError, match="is written over its input"):
        verify(native, replace(program, steps=steps), plan)


def test_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setenv("MONOGRAPH_VERIFY", "1")
    monkeypatch.setattr(ProgramVerifier, "verify", lambda *arguments: seen.append(arguments))
    compiled = monograph.compile(chain, "f32[n, 64]", "f32[64, 64]")
    for rows in (3, 5, 3):
        compiled(np.ones((rows, 64), np.float32), np.ones((64, 64), np.float32))
    assert len(seen) == 2


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_loops_and_branches_pass(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_VERIFY", "1")

    def function(x: Any) -> Any:
        total, parts = F.scan(
            lambda carry, row: (F.tanh(carry + row) * 0.5, F.softmax(carry * row, -1)),
            F.zeros((24,)),
            x,
        )
        return F.cond(F.sum(total) > 0.0, lambda t: t * 2.0, lambda t: t - 1.0, total), parts

    graph = monograph.trace(function, "f32[n, 24]")
    x = np.random.default_rng(0).normal(size=(rows, 24)).astype(np.float32)
    for got, want in zip(
        compile_graph(graph, Options(cache=False))(x), monograph.interpret(graph, [x]), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_formulas_that_share_their_parts_are_verified_in_no_time() -> None:
    """Random numbers: written out as a tree, their formula would never end."""
    graph = monograph.trace(lambda x, key: x + F.random_bits(key, (3,)), "u32[2, 3]", "u32[2]")
    x, key = np.ones((2, 3), np.uint32), np.array([1, 2], np.uint32)
    (got,) = compile_graph(graph, Options(cache=False))(x, key)
    np.testing.assert_array_equal(got, monograph.interpret(graph, [x, key])[0])


def test_inputs_are_never_written_to() -> None:
    """A view of an input that several kernels read is the input's memory already."""

    def function(x: Any, y: Any) -> Any:
        return F.translate(x, y, y, 0.0), F.is_nan(F.reshape(x, (3000, 1)))

    graph = monograph.trace(function, "f32[3000]", "f32[40]")
    x, y = np.arange(3000, dtype=np.float32), np.arange(40, dtype=np.float32)
    for level in ("O0", "O2"):
        executable = compile_graph(graph, Options(level, cache=False))
        executable(x, y)  # verified
        assert isinstance(executable.native, Native)
        kinds = [slot.kind for slot in executable.native.program.slots]
        for step in executable.native.program.steps:
            if isinstance(step, Launch):
                written = step.slots[len(step.slots) - step.outputs :]
                assert SlotKind.INPUT not in {kinds[slot] for slot in written}

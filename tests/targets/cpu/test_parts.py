"""A program that is compiled in parts is the program that is compiled as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.runtime.compiled import Executable
from monograph.targets.cpu import machine as machine_module
from monograph.targets.cpu import parts
from monograph.targets.cpu.machine import Compiled, Effort, Machine


def several() -> Executable:
    """A program of more than one kernel."""

    def function(x: Value) -> Value:
        return (x @ x) @ (x @ x + 1.0)

    return compile_graph(trace(function, "f32[48, 48]"), Options(cache=False))


def objects(executable: Executable) -> list[bytes]:
    assert executable.code is not None
    return parts.objects_in(executable.code.object)


def test_parts_compute_what_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32)
    whole = several()
    monkeypatch.setattr(parts, "MIN_PART_CHARACTERS", 100)
    cut = several()
    assert len(objects(whole)) == 1
    assert len(objects(cut)) > 2
    np.testing.assert_array_equal(whole.run([x])[0], cut.run([x])[0])


def test_kernels_are_compiled_while_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def gather(self: parts.PartsInProgress, name: str, kernel: str, declarations: object) -> None:
        begun.append(name)
        known(self, name, kernel, declarations)

    known = parts.PartsInProgress.gather
    monkeypatch.setattr(parts.PartsInProgress, "gather", gather)
    monkeypatch.setattr(parts, "MIN_PART_CHARACTERS", 100)
    function = trace(lambda x: (x @ x, F.softmax(x, axis=-1), F.sum(x, axis=0)), "f32[48, 48]")
    x = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32)
    executable = compile_graph(function, Options(cache=False))
    assert begun and not any("dot_general" in name for name in begun)
    assert len(objects(executable)) > len(begun)
    for found, expected in zip(executable.run([x]), interpret(function, [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_loops_are_optimised_and_plain_launches_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    efforts: list[Effort] = []

    def compile_text(text: str, machine: Machine, *, effort: Effort = Effort.FULL) -> Compiled:
        efforts.append(effort)
        return machine_module.compile_text(text, machine, effort=effort)

    monkeypatch.setattr(parts, "compile_text", compile_text)
    monkeypatch.setattr(parts, "MIN_PART_CHARACTERS", 100)
    several()
    assert efforts.count(Effort.NONE) == 1
    efforts.clear()

    def counted(x: Value) -> Value:
        return F.for_loop(0, 3, lambda k, y: F.tanh(y @ y), x) @ x

    compile_graph(trace(counted, "f32[48, 48]"), Options(cache=False))
    assert len(efforts) > 1 and Effort.NONE not in efforts


def test_a_program_that_variants_replace_is_compiled_quickly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    efforts: list[Effort] = []

    def compile_text(text: str, machine: Machine, *, effort: Effort = Effort.FULL) -> Compiled:
        efforts.append(effort)
        return machine_module.compile_text(text, machine, effort=effort)

    def layers(x: Value) -> Value:
        return F.softmax(F.gelu(x @ F.transpose(x, (1, 0))) @ x, -1)

    monkeypatch.setattr(parts, "compile_text", compile_text)
    monkeypatch.setattr(parts, "MIN_PART_CHARACTERS", 100)
    x = np.random.default_rng(2).standard_normal((5, 24)).astype(np.float32)
    results = []
    for variants, effort in ((0, Effort.FULL), (2, Effort.QUICK)):
        efforts.clear()
        function = trace(layers, "f32[n, 24]")
        made = compile_graph(function, Options(cache=False, variants=variants))
        assert set(efforts) - {Effort.NONE} == {effort}
        results.append(made.run([x])[0])
    np.testing.assert_array_equal(*results)


def test_an_archive_gives_back_its_objects() -> None:
    given = [b"one", b"", b"four"]
    assert parts.objects_in(parts.archive(given)) == given


def test_an_object_is_its_own_only_one() -> None:
    assert parts.objects_in(b"\x7fELF...") == [b"\x7fELF..."]


@pytest.mark.parametrize("cut", [1, 4, 30])
def test_an_incomplete_archive_is_refused(cut: int) -> None:
    with pytest.raises(InputError, match="incomplete"):
        parts.objects_in(parts.archive([b"object"])[:-cut])


def test_kernels_are_spread_evenly() -> None:
    found = parts._even_parts(["a" * 50, "b" * 30, "c" * 25, "d" * 5], 2)
    assert [sum(map(len, part)) for part in found] == [55, 55]


def test_kernels_of_the_same_text_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def compile_text(text: str, machine: Machine, *, effort: Effort = Effort.FULL) -> Compiled:
        texts.append(text)
        return machine_module.compile_text(text, machine, effort=effort)

    generator = np.random.default_rng(5)
    graph = Graph("wider")
    x = graph.add_input("x", "f32[48, 64]")
    with graph.as_current():
        for number, width in enumerate((128, 256)):  # packed alike, in more panels
            weight = generator.standard_normal((width, 64)).astype(np.float32)
            graph.set_outputs([*graph.outputs, F.linear(x, graph.add_weight(f"w{number}", weight))])
    given = generator.standard_normal((48, 64)).astype(np.float32)
    monkeypatch.setattr(parts, "compile_text", compile_text)
    for part in (parts.MIN_PART_CHARACTERS, 100):  # as a whole, and in parts
        texts.clear()
        monkeypatch.setattr(parts, "MIN_PART_CHARACTERS", part)
        executable = compile_graph(graph, Options(cache=False))
        assert executable.program is not None
        names = [kernel.name for kernel in executable.program.kernels if "pack" in kernel.name]
        defined = [name for name in names if f"define void @{name}(" in "".join(texts)]
        assert (len(names), len(defined)) == (2, 1)
        for got, expected in zip(executable.run([given]), interpret(graph, [given]), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)

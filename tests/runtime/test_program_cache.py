"""Nothing but the time shows whether a program came from the cache: not for any weights."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monograph import compiler as compile_module
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import UnsupportedError
from monograph.frontends.trace import trace
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.runtime.atomic import is_temporary
from monograph.runtime.bundle import Bundle
from monograph.runtime.cache import Cache, cache_key
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.thread_pool import load_or_compile_pool, load_pool, pool
from monograph.runtime.program_cache import ProgramCache, Watch, Watched, text_without_weights
from monograph.targets.cpu import build as build_module
from tests.ir import probe_ops
from tests.runtime.programs import CASES, Case, floats, layered, let_interpret, same

NATIVE = {name: case for name, case in CASES.items() if name != "strings"}
IMAGE = floats(1, 3, 9, 9)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unverified: None) -> Path:
    """A cache that is on, and empty."""
    let_interpret(monkeypatch)
    pool()  # it has an entry of its own, which would be in the way
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled(graph: Graph, state: str, **options: Any) -> Executable:
    """Compile a graph, of which the cache must know this."""
    executable = compile_graph(graph, Options(**options))
    assert executable.report.cache == state
    return executable


def uncached(graph: Graph, *inputs: Array) -> list[Array]:
    return compiled(graph, "off", cache=False).run(inputs)


def with_weight(label: str, change: Callable[[Array], Array], seed: int = 0) -> Graph:
    """The layered model with one weight replaced."""
    graph = layered(seed)
    for node in graph.walk():
        if node.op.name == "weight" and node.op.label == label:  # type: ignore[attr-defined]
            array = node.op.data.array()  # type: ignore[attr-defined]
            node.op = type(node.op)(label, ArrayData(change(array)))  # type: ignore[call-arg]
    return graph


LABELS = ("conv", "scale", "bias", "mean", "variance", "linear", "last")


class TestHits:
    @pytest.mark.parametrize("case", NATIVE.values(), ids=NATIVE)
    def test_results_are_the_same_cold_and_warm(self, case: Case) -> None:
        cold = compiled(case.graph(), "miss")
        warm = compiled(case.graph(), "hit")
        for inputs in case.inputs:
            assert same(cold.run(inputs), warm.run(inputs))
        assert warm.report.fallbacks == cold.report.fallbacks
        assert warm.report.nodes_after == cold.report.nodes_after

    def test_a_hit_compiles_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled(layered(), "miss")

        def never(*_: object, **__: object) -> None:
            raise AssertionError("a hit has compiled")

        monkeypatch.setattr(compile_module, "run_pipeline", never)
        monkeypatch.setattr(compile_module, "fuse_regions", never)
        compiled(layered(), "hit")

    def test_what_was_not_compiled_can_still_be_looked_at(self) -> None:
        cold, warm = compiled(layered(), "miss"), compiled(layered(), "hit")
        assert warm.program is not None and cold.program is not None
        assert warm.program.text == cold.program.text
        assert str(warm.lowered) == str(cold.lowered)

    def test_threads_and_strictness_are_not_compiled_in(self) -> None:
        compiled(layered(), "miss", threads=1)
        compiled(layered(), "hit", threads=2, strict=True)

    def test_a_hit_is_as_strict_as_a_miss(self) -> None:
        graph = CASES["interpreted node"].graph()
        compiled(graph, "miss")
        with pytest.raises(UnsupportedError, match="atan"):
            compile_graph(graph, Options(strict=True))

    @pytest.mark.parametrize("options", [{"level": "O1"}, {"fusion": False}], ids=str)
    def test_how_it_is_compiled_matters(self, options: dict[str, Any]) -> None:
        compiled(layered(), "miss")
        compiled(layered(), "miss", **options)
        compiled(layered(), "hit", **options)

    @pytest.mark.parametrize("name", ["MONOGRAPH_VECTOR_BYTES", "MONOGRAPH_VECTOR_REGISTERS"])
    def test_the_vectors_that_the_processor_is_said_to_have_matter(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for count in ("16", "32"):
            monkeypatch.setenv(name, count)
            compiled(layered(), "miss")
            compiled(layered(), "hit")

    def test_constants_matter_to_the_bit(self) -> None:
        numbers = np.linspace(0, 1, 100, dtype=np.float32)
        other = numbers.copy()
        other[50] = np.nextafter(other[50], np.float32(2))
        for array in (numbers, other):
            graph = trace(lambda x, c=array: x * c, "f32[100]")
            x = floats(100)
            assert same(compiled(graph, "miss").run([x]), [x * array])


class TestOff:
    def test_the_environment_turns_it_off(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        monkeypatch.setenv("MONOGRAPH_CACHE", "0")
        compiled(layered(), "off")
        assert not folder.exists()
        compiled(layered(), "miss", cache=True)
        compiled(layered(), "off")

    def test_what_is_to_be_watched_is_compiled(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        compiled(layered(), "miss")
        compiled(layered(), "off", listings=True)
        monkeypatch.setenv("MONOGRAPH_DUMP", str(tmp_path / "dump"))
        compiled(layered(), "off")

    def test_an_op_from_elsewhere_may_have_changed(self, folder: Path) -> None:
        graph = Graph()
        x = graph.add_input("x", "f32[4]")
        graph.set_outputs([graph.add(probe_ops.Probe(1), x)])
        compiled(graph, "off")
        assert not folder.exists()

    def test_what_only_the_interpreter_runs_is_not_stored(self, folder: Path) -> None:
        compiled(CASES["strings"].graph(), "off")
        assert not folder.exists()


class TestWeights:
    """Equal structure, other weights: the code may be shared, what was folded may not."""

    def test_two_models_of_one_architecture_are_two(self) -> None:
        for state in ("miss", "hit", "hit"):
            for seed in (0, 1, 2):
                graph = layered(seed)
                assert same(compiled(graph, state).run([IMAGE]), uncached(graph, IMAGE))

    @pytest.mark.parametrize("label", LABELS)
    def test_each_weight_counts(self, label: str) -> None:
        compiled(layered(), "miss")
        graph = with_weight(label, lambda array: array * 1.5)
        executable = compile_graph(graph)
        assert same(executable.run([IMAGE]), uncached(graph, IMAGE))
        assert not same(executable.run([IMAGE]), uncached(layered(), IMAGE))

    @pytest.mark.parametrize("label", LABELS)
    @pytest.mark.parametrize("value", [0.0, -0.0, 1.0, np.nan])
    def test_weights_of_one_number_are_not_confused(self, label: str, value: float) -> None:
        compiled(layered(), "miss")
        graph = with_weight(label, lambda array: np.full_like(array, value))
        assert same(compile_graph(graph).run([IMAGE]), uncached(graph, IMAGE))
        assert same(compile_graph(layered()).run([IMAGE]), uncached(layered(), IMAGE))

    def test_weights_that_the_compiler_does_not_read_share_the_code(self) -> None:
        compiled(layered(), "miss")
        graph = with_weight("linear", lambda array: array + 1)
        assert same(compiled(graph, "hit").run([IMAGE]), uncached(graph, IMAGE))

    def test_a_large_weight_that_is_turned_and_scaled_is_not_stored(self, folder: Path) -> None:
        def model() -> Graph:
            weight = floats(300, 200)
            return trace(
                lambda x: x @ F.transpose(F.tanh(x.graph.add_weight("w", weight))), "f32[40, 200]"
            )

        x = floats(40, 200)
        for state in ("miss", "hit"):
            graph = model()
            assert same(compiled(graph, state).run([x]), uncached(graph, x))
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 200_000

    def test_weights_that_become_equal_are_still_two(self) -> None:
        def model(one: Array, other: Array) -> Graph:
            graph = Graph()
            x = graph.add_input("x", "f32[6]")
            a, b = graph.add_weight("a", one), graph.add_weight("b", other)
            graph.set_outputs([x * a - x * b])
            return graph

        first, second, x = floats(6), floats(6), floats(6)
        states = [("miss", first, first), ("hit", first, second), ("hit", second, first)]
        for state, one, other in states:
            found = compiled(model(one, other), state).run([x])
            assert same(found, [x * one - x * other])

    def test_names_and_types_of_weights_matter(self) -> None:
        def model(name: str, array: Array) -> Graph:
            graph = Graph()
            x = graph.add_input("x", "f32[6]")
            graph.set_outputs([x + F.cast(graph.add_weight(name, array), "f32")])
            return graph

        for name, array in (
            ("a", floats(6)),
            ("b", floats(6)),
            ("a", np.arange(6, dtype=np.int32)),
        ):
            compiled(model(name, array), "miss")

    def test_weights_swapped_between_names_are_noticed(self) -> None:
        def model(one: Array, other: Array) -> Graph:
            graph = Graph()
            x = graph.add_input("x", "f32[100]")
            a, b = graph.add_weight("a", one), graph.add_weight("b", other)
            graph.set_outputs([x * (a - b)])
            return graph

        first, second, x = floats(100), floats(100), floats(100)
        compiled(model(first, second), "miss")
        assert same(compiled(model(second, first), "miss").run([x]), [x * (second - first)])

    @pytest.mark.parametrize("state", ["miss", "hit"])
    @pytest.mark.parametrize("part", ["all", "some"])
    def test_writing_to_a_weight_later_does_not_show_cold_or_warm(
        self, state: str, part: str
    ) -> None:
        """Not even where a folded reshape or slice is a view of the weight's memory."""
        array, x = np.ones(128, np.float32), np.ones((2, 64 if part == "all" else 32), np.float32)

        def model() -> Graph:
            graph = Graph()
            given = graph.add_input("x", f"f32[2, {x.shape[1]}]")
            weight = graph.add_weight("w", array)
            with graph.as_current():
                used = weight if part == "all" else weight[:64]
                graph.set_outputs([given * F.reshape(used, x.shape)])
            return graph

        if state == "hit":
            compiled(model(), "miss")
        executable = compiled(model(), state)
        array[:] = 5.0
        (result,) = executable.run([x])
        assert np.unique(result).tolist() == [1.0]


class TestWatch:
    @pytest.mark.parametrize(
        "look",
        [
            lambda data: data.array(),
            lambda data: data.digest,
            lambda data: data.splat,
            lambda data: hash(data),
            lambda data: data == ArrayData(data.source.array()),
            lambda data: ArrayData(data.source.array()) == data,
        ],
    )
    def test_every_way_to_look_is_noticed(self, look: Callable[[Watched], object]) -> None:
        data = Watched(ArrayData(floats(3)), 0)
        look(data)
        assert data.was_read

    def test_type_and_size_are_no_secret(self) -> None:
        data = Watched(ArrayData(floats(3)), 0)
        assert (data.size, str(data.type)) == (3, "f32[3]")
        assert not data.was_read

    def test_common_subexpressions_are_found_without_reading_weights(self) -> None:
        watch = Watch(layered())
        for node in watch.graph.walk():
            hash(node.op)
        assert watch.read == ()

    def test_the_watch_ends(self) -> None:
        graph = layered()
        executable = compiled(graph, "miss")
        assert executable.code is not None
        stored: list[Data] = [*executable.code.weights]
        stored += [n.op.data for n in executable.lowered.walk() if hasattr(n.op, "data")]
        assert stored and not any(isinstance(data, Watched) for data in stored)

    def test_the_key_reads_no_weight(self) -> None:
        watch = Watch(layered())
        text_without_weights(watch.graph)
        assert watch.read == ()

    def test_what_is_read_may_depend_on_what_was_read(self, folder: Path) -> None:
        """One compilation read the first weight alone, another, for its contents, the second."""
        cache, key = Cache(folder), cache_key({"model": "m"})
        code = compile_graph(layered(), Options(cache=False)).code
        assert code is not None

        def entry(one: float, other: float) -> ProgramCache:
            graph = Graph()
            for name, number in (("a", one), ("b", other)):
                graph.add_weight(name, np.full(4, number, np.float32))
            return ProgramCache(cache, key, graph)

        entry(0, 0).keep(code, [0], "zeros")
        found = entry(0, 7).find()
        assert found is not None and found.note == "zeros"
        entry(1, 1).keep(code, [0, 1], "ones")
        assert entry(1, 2).find() is None
        assert (found := entry(1, 1).find()) is not None and found.note == "ones"


def test_the_thread_pool_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_pool = load_or_compile_pool()
    (path,) = folder.iterdir()

    def never(_: str) -> bytes:
        raise AssertionError("the pool has been compiled again")

    with monkeypatch.context() as patch:
        patch.setattr("monograph.runtime.cpu.thread_pool.compile_pool", never)
        assert load_or_compile_pool() == compiled_pool
    path.write_bytes(path.read_bytes()[:-1])
    assert load_or_compile_pool() == compiled_pool
    another = load_pool(compiled_pool)
    another.configure(2)
    assert another.start(2) == 2
    assert another.stop()


class TestDamage:
    def test_a_damaged_entry_is_a_miss(self, folder: Path) -> None:
        compiled(layered(), "miss")
        for path in folder.iterdir():
            contents = bytearray(path.read_bytes())
            contents[len(contents) // 2] ^= 1
            path.write_bytes(contents)
        assert same(compiled(layered(), "miss").run([IMAGE]), uncached(layered(), IMAGE))
        compiled(layered(), "hit")

    def test_an_entry_that_holds_something_else_is_a_miss(self, folder: Path) -> None:
        graph = CASES["several outputs"].graph()
        compiled(graph, "miss")
        (path,) = folder.iterdir()
        key = path.stem
        for bundle in (
            Bundle({}),
            Bundle({"read": [99]}),
            Bundle({"read": "all"}),
            Bundle({"note": {}}, {"program.o": b"", "program.json": b"{}"}),
        ):
            Cache(folder).put(key, bundle)
            compiled(graph, "miss")
        compiled(graph, "hit")

    def test_an_interrupted_compile_leaves_nothing(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(build_module.PartsInProgress, "compiled", interrupted)
            with pytest.raises(KeyboardInterrupt):
                compile_graph(layered())
        assert not folder.exists()
        graph = layered()
        assert same(compiled(graph, "miss").run([IMAGE]), uncached(graph, IMAGE))

    def test_an_interrupted_write_leaves_nothing(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("monograph.runtime.atomic.os.fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                compile_graph(layered())
        assert list(folder.iterdir()) == []
        compiled(layered(), "miss")


FILL = """
import os
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
import monograph.runtime.atomic as atomic
from monograph.frontends.trace import trace
from monograph.compiler import compile_graph
from monograph.runtime.cpu.thread_pool import pool
from tests.runtime.programs import layered

os.environ["MONOGRAPH_CACHE"] = "0"
pool()
os.environ["MONOGRAPH_CACHE"] = "1"

def step(k):
    return trace(lambda x: x * float(k) + 1.0, "f32[64]")
"""


def python(program: str, **options: Any) -> subprocess.Popen[str]:
    """A process that shares the cache."""
    text = FILL + textwrap.dedent(program)
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(process: subprocess.Popen[str], blow: signal.Signals) -> str:
    """What a process said as it ended; it is struck again if it was in a finalizer.

    The interpreter ignores an exception there, a KeyboardInterrupt too.
    """
    for _ in range(20):
        process.send_signal(blow)
        try:
            return process.communicate(timeout=3)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError("the process does not end")


def check_all(count: int) -> None:
    """Whatever the cache now holds, the results are right."""
    x = floats(64)
    for k in range(count):
        graph = trace(lambda x, k=k: x * float(k) + 1.0, "f32[64]")
        expected = uncached(graph, x)
        assert same(compile_graph(graph).run([x]), expected)
        assert same(compiled(graph, "hit").run([x]), expected)


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")


@posix
class TestProcesses:
    @pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
    def test_a_process_that_ends_while_it_fills_the_cache(
        self, blow: signal.Signals, folder: Path
    ) -> None:
        process = python(
            """
            print("go", flush=True)
            for k in range(10_000):
                compile_graph(step(k))
            """
        )
        assert process.stdout is not None
        with process:
            assert process.stdout.readline() == "go\n"
            while not folder.exists() or len(list(folder.iterdir())) < 2:
                assert process.poll() is None
                time.sleep(0.01)
            errors = ended(process, blow)
        assert process.returncode != 0
        if blow is signal.SIGINT:
            assert errors.rstrip().endswith("KeyboardInterrupt")
            assert not any(is_temporary(path.name) for path in folder.iterdir())
        check_all(4)

    def test_a_process_killed_in_the_middle_of_a_write(self, folder: Path) -> None:
        process = python(
            """
            import time
            def stuck(descriptor):
                print("writing", flush=True)
                time.sleep(600)
            atomic.os.fsync = stuck
            compile_graph(step(0))
            """
        )
        assert process.stdout is not None
        with process:
            assert process.stdout.readline() == "writing\n"
            process.kill()
        (left,) = folder.iterdir()
        assert is_temporary(left.name)
        check_all(1)

    def test_processes_that_fill_one_cache_at_once(self, folder: Path) -> None:
        program = """
            for k in range(6):
                compile_graph(step(k))
                compile_graph(layered(k % 3))
            """
        processes = [python(program) for _ in range(2)]
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
        check_all(6)
        for seed in range(3):
            graph = layered(seed)
            assert same(compiled(graph, "hit").run([IMAGE]), uncached(graph, IMAGE))

"""The search: what it keeps, what it drops, when it ends, and what it remembers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, MonographError
from monograph.ops.control import while_loop
from monograph.runtime.bundle import Bundle
from monograph.runtime.cache import Cache
from monograph.runtime.edits import read_edits
from monograph.runtime.options import DEFAULT_SECONDS
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import host
from monograph.targets.cpu.tuning import Choice, Edits, Recorder, Site, Tuning
from monograph.tuning.alternating_timer import Timing
from monograph.tuning.search import (
    Alone,
    Search,
    TuningMemory,
    TuningReport,
    is_clearly_faster,
    memory_for,
    tune,
)


class Clock:
    """Stands still, but for what measuring takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Figures:
    """A bench whose figures are given: seconds for edits, one second of the clock a way."""

    def __init__(self, seconds: Callable[[Site, Edits], float | None], clock: Clock) -> None:
        self.seconds = seconds
        self.clock = clock
        self.asked: list[tuple[str, Edits]] = []

    def times(self, site: Site, ways: Sequence[Edits], until: float) -> list[Timing | None]:
        self.clock.now += len(ways)
        self.asked += [(site.digest, way) for way in ways]
        found = (self.seconds(site, way) for way in ways)
        return [None if each is None else Timing((each,)) for each in found]


@dataclass(frozen=True)
class FixedPlan:
    """A plan that is measured by nobody."""

    digest: str
    choice: Schedule
    group: Any = None

    def with_choice(self, choice: Choice) -> FixedPlan:
        assert isinstance(choice, Schedule)
        return replace(self, choice=choice)

    def launch(self, builder: object, read: Sequence[int], written: Sequence[int]) -> None:
        raise AssertionError("figures are given")


def _site(digest: str, launches: int = 1, grain: int = 4) -> Site:
    choice = Schedule((), 0, 0, grain=grain, cache_row=True)
    return Site(digest, digest, FixedPlan(digest, choice), (), (), (), launches)


def _search(seconds: Callable[[Site, Edits], float | None]) -> tuple[Search, Figures]:
    clock = Clock()
    bench = Figures(seconds, clock)
    return Search(bench, host(), clock), bench


def test_the_better_value_of_each_knob_stays() -> None:
    def seconds(site: Site, edits: Edits) -> float:
        without_keeping = 0.5 if edits.get("cache_row") == 0 else 1.0
        return without_keeping * {1: 0.8, 16: 0.6}.get(edits.get("grain", 4), 1.0)

    search, _ = _search(seconds)
    (found,) = search.run([_site("a")], 1000)
    assert found.edits == {"cache_row": 0, "grain": 16}
    assert (found.before, found.after) == (1.0, pytest.approx(0.3))
    assert found.complete


def test_the_default_stays_where_nothing_is_clearly_faster() -> None:
    search, _ = _search(lambda site, edits: 1.0 if not edits else 0.99)
    (found,) = search.run([_site("a")], 1000)
    assert found.edits == {} and found.after == found.before


def test_a_gain_that_does_not_show_again_is_dropped() -> None:
    seen: list[Edits] = []

    def seconds(site: Site, edits: Edits) -> float:
        seen.append(edits)
        return 0.5 if edits and seen.count(edits) == 1 else 1.0

    search, _ = _search(seconds)
    (found,) = search.run([_site("a")], 1000)
    assert found.edits == {}


def test_a_way_that_does_not_work_is_not_taken() -> None:
    search, _ = _search(lambda site, edits: None if edits else 1.0)
    (found,) = search.run([_site("a")], 1000)
    assert found.edits == {}


def test_what_takes_most_of_a_call_comes_first_and_the_time_ends() -> None:
    slow, often, rare = _site("slow"), _site("often", launches=12), _site("rare")
    default = {"slow": 3.0, "often": 1.0, "rare": 0.1}
    search, bench = _search(lambda site, edits: default[site.digest])
    findings = search.run([rare, slow, often], 10)
    assert findings[0].digest == "often"
    assert len(findings) < 3 or not all(each.complete for each in findings)
    assert search.clock() <= 20
    assert {digest for digest, _ in bench.asked[:3]} == {"slow", "often", "rare"}


def test_a_trifle_is_left_alone() -> None:
    search, bench = _search(lambda site, edits: 1e-7)
    (found,) = search.run([_site("a")], 1000)
    assert found.tried == 0 and len(bench.asked) == 1


def _memory(folder: Path) -> TuningMemory:
    return TuningMemory(Cache(folder / "cache"), host(), 2)


def _faster(site: Site, edits: Edits) -> float:
    return 0.5 if edits.get("cache_row") == 0 else 1.0


def test_what_makes_the_whole_program_faster_is_kept_and_remembered(tmp_path: Path) -> None:
    search, _ = _search(_faster)
    tried: list[Tuning] = []

    def compare(tuning: Tuning) -> tuple[Timing, Timing]:
        tried.append(tuning)
        return Timing((2.0,)), Timing((1.0,))

    sites = [_site("a")]
    report = tune(sites, search, 1000, _memory(tmp_path), compare)
    assert report.kept and report.gain == 2.0
    assert tried[0].edits == {"a": {"cache_row": 0}}
    search, bench = _search(_faster)
    again = tune(sites, search, 1000, _memory(tmp_path), compare)
    assert again.kept and again.edits == report.edits
    assert again.findings[0].remembered and bench.asked == []


def test_a_program_that_is_not_faster_keeps_the_default_and_nothing_is_remembered(
    tmp_path: Path,
) -> None:
    search, _ = _search(_faster)
    compare = lambda tuning: (Timing((1.0,)), Timing((1.0,)))  # noqa: E731
    report = tune([_site("a")], search, 1000, _memory(tmp_path), compare)
    assert not report.kept
    assert _memory(tmp_path).get("a") is None


def test_an_unfinished_search_goes_on_where_it_ended(tmp_path: Path) -> None:
    compare = lambda tuning: (Timing((2.0,)), Timing((1.0,)))  # noqa: E731
    search, _ = _search(_faster)
    report = tune([_site("a")], search, 3, _memory(tmp_path), compare)
    assert report.kept and not report.findings[0].complete
    search, bench = _search(_faster)
    again = tune([_site("a")], search, 1000, _memory(tmp_path), compare)
    assert again.findings[0].complete and again.edits == report.edits
    assert ("a", {"cache_row": 0, "grain": 1}) in bench.asked


def test_time_to_build_the_program_again_is_left(tmp_path: Path) -> None:
    def compare(tuning: object) -> tuple[Timing, Timing]:
        return Timing((2.0,)), Timing((1.0,))

    sites = [_site(name) for name in "abcdefgh"]
    spent = []
    for building in (0.0, 30.0):
        search, _ = _search(_faster)
        tune(sites, search, 100, TuningMemory(None, host(), 2), compare, building)
        spent.append(search.clock())
    assert spent[1] <= 100 - 30 < spent[0]


def test_other_machines_and_thread_counts_have_a_memory_of_their_own(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    compare = lambda tuning: (Timing((2.0,)), Timing((1.0,)))  # noqa: E731
    search, _ = _search(_faster)
    tune([_site("a")], search, 1000, TuningMemory(cache, host(), 2), compare)
    assert TuningMemory(cache, host(), 2).get("a") == ({"cache_row": 0}, True)
    assert TuningMemory(cache, host(), 1).get("a") is None
    assert TuningMemory(None, host(), 2).get("a") is None


@pytest.mark.parametrize("edits", [{"width": -1}, {"width": "x"}, {"width": 1 << 40}, [], None])
def test_edits_that_make_no_sense_are_a_miss(tmp_path: Path, edits: object) -> None:
    with pytest.raises(MonographError):
        read_edits(edits)
    memory = _memory(tmp_path)
    assert memory.cache is not None
    memory.cache.put(memory._key("a"), Bundle({"edits": edits, "complete": True}))
    assert memory.get("a") is None


def test_a_knob_is_read_under_its_former_name() -> None:
    assert read_edits({"keep": 0, "grain": 4}) == {"cache_row": 0, "grain": 4}


def test_both_the_usual_and_the_best_time_must_be_shorter() -> None:
    default = Timing((1.0, 1.0, 1.0))
    assert is_clearly_faster(Timing((0.9, 0.9, 0.9)), default)
    assert not is_clearly_faster(Timing((0.5, 1.0, 1.0)), default)
    assert not is_clearly_faster(Timing((0.99, 0.99, 0.99)), default)


GRAPH = monograph.trace(lambda x: F.softmax(x, axis=-1), "f32[64, 300]")


def test_kernels_are_measured_alone_and_wrong_ones_have_no_time() -> None:
    recorder = Recorder()
    compile_graph(GRAPH, Options(tuning=recorder, cache=False))
    (site,) = recorder.sites.values()
    bench = Alone(host(), 2)
    first, second = bench.times(site, [{}, {"grain": 1}], 0.0)
    assert first is not None and second is not None
    assert first.best > 0 and len(first.turns) >= 3
    bench._built[(("grain", 2),)] = lambda: None  # writes nothing at all
    assert bench.times(site, [{}, {"grain": 2}], 0.0)[1] is None


def test_nothing_new_is_compiled_when_the_time_is_over() -> None:
    recorder = Recorder()
    compile_graph(GRAPH, Options(tuning=recorder, cache=False))
    (site,) = recorder.sites.values()
    bench = Alone(host(), 2)
    ways: list[Edits] = [{}, {"grain": 1}, {"grain": 2}]
    default, first, late = bench.times(site, ways, 0.0)
    assert default is not None and first is not None and late is None
    assert None not in bench.times(site, ways, time.perf_counter() + 60)


def test_a_kernel_that_writes_a_part_of_its_output_has_a_time() -> None:
    weight = np.linspace(-1, 1, 32 * 27, dtype=np.float32).reshape(32, 3, 3, 3)
    graph = monograph.trace(lambda x: F.conv(x, weight, stride=2, padding=1), "f32[1, 3, 20, 20]")
    recorder = Recorder()
    compile_graph(graph, Options(tuning=recorder, cache=False))
    bench = Alone(host(), 2)
    for site in recorder.sites.values():
        assert bench.times(site, [{}], 0.0)[0] is not None


@pytest.mark.usefixtures("unverified")
def test_a_compilation_searches_within_its_budget_and_finds_its_result_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    x = np.linspace(-1, 1, 64 * 300, dtype=np.float32).reshape(64, 300)
    executable = compile_graph(GRAPH, Options(budget=20.0))
    search = executable.report.search
    assert isinstance(search, TuningReport) and search.findings
    again = compile_graph(GRAPH, Options(budget=1.0))
    assert again.report.cache == "hit" and again.report.search is None
    assert again.report.tuning == executable.report.tuning
    plain = compile_graph(GRAPH, Options())
    assert plain.report.cache == "miss" and plain.report.tuning == {}
    for each in (executable, again):
        np.testing.assert_allclose(each(x)[0], plain(x)[0], rtol=1e-5)


def test_only_the_highest_level_searches_unless_it_is_told() -> None:
    assert Options("O3").search_seconds == DEFAULT_SECONDS
    assert Options("O3", budget=0.0).search_seconds == 0.0
    assert Options("O2").search_seconds == 0.0
    assert Options("O2", budget=2.0).search_seconds == 2.0
    assert Options("O3", tuning=Tuning()).search_seconds == 0.0
    with pytest.raises(InputError, match="budget"):
        Options(budget=-1.0)


def test_a_program_whose_loops_depend_on_its_data_is_not_run_on_other_data() -> None:
    def halved(x: monograph.Value) -> monograph.Value:
        return while_loop(lambda a: F.max(a) > 1.0, lambda a: a * 0.5, x)

    graph = monograph.trace(halved, "f32[4]")
    executable = compile_graph(graph, Options(budget=0.5, cache=False))
    assert executable.report.search is not None and executable.report.search.findings == ()
    assert executable(np.full(4, 4.0, np.float32))[0].tolist() == [1.0] * 4


def test_there_is_a_memory_only_where_there_is_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE", "0")
    assert memory_for(host(), 2, None).cache is None
    assert memory_for(host(), 2, True).cache is not None
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    assert memory_for(host(), 2, False).cache is None

"""Tuning: other ways to compute each kernel, measured on this machine within a time budget.

    sites ─▶ slow ones first ─▶ knob by knob, the better value stays ─▶ clearly better than default?
    ─▶ the whole program, default and tuned, by turns ─▶ the tuned one, if it is faster

Every kernel is measured alone, on arrays of the right sizes. A way that gives other results than
the default one is dropped, and so is one that is not clearly faster; and if all of them together do
not make the program faster, the default program stays. What was found is remembered on disk, by
kernel and machine, so that the next model with the same kernel has it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from monograph.config import Config
from monograph.errors import MonographError
from monograph.ir.dims import likely_size
from monograph.ir.types import Array
from monograph.program.records import require_type
from monograph.progress import announce
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.cache import Cache, cache_key, open_cache, toolchain
from monograph.runtime.cpu.native import Native
from monograph.runtime.edits import read_edits
from monograph.runtime.tuning_report import Finding, TuningReport
from monograph.targets.cpu.knobs import edit, knobs
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.single import KernelInputs
from monograph.targets.cpu.tuning import Edits, Site, Tuning
from monograph.tuning.alternating_timer import Timing, alternate

MAX_STEP_TIME_SHARE = 0.97
"""The share of the time so far under which another value of a knob is taken."""
MAX_WINNING_TIME_SHARE = 0.98
"""The share of the default's time that what was found must stay under, by median and by best."""
MIN_TUNED_SECONDS = 3e-6
"""Seconds under which a kernel is a call's overhead, and nothing is to be gained."""
TIMING_ROUNDS = 9
"""Turns of each way, if there is time."""
FIRST_LOOK_SHARE, FINAL_LOOK_SHARE = 0.3, 0.2
"""Shares of the time for seeing what every site takes, and for the whole program at the end."""
LEAST_SEARCH = 0.4
"""The share of the time that is left for searching, however long building the program takes."""
NO_EDITS: Mapping[str, Any] = MappingProxyType({})
MAX_RELATIVE_DIFFERENCE = 1e-3
"""How far results may be from the default's, over the largest of them."""


class Bench(Protocol):
    """Times ways to compute a site; None is one that does not work or gives other results."""

    def times(self, site: Site, ways: Sequence[Edits], until: float) -> list[Timing | None]:
        """The times of each way, by turns; the first is the one that the others should equal."""


class Alone:
    """Measures kernels by themselves, in programs of one kernel each.

    ``cold`` is called before each timed call: it empties the cache, as the rest of a large program
    would.
    """

    def __init__(
        self, machine: Machine, threads: int | None, cold: Callable[[], object] | None = None
    ) -> None:
        self.machine = machine
        self.threads = threads
        self.cold = cold
        self._site: Site | None = None
        self._stage: KernelInputs | None = None
        self._built: dict[tuple[tuple[str, int], ...], Callable[[], object] | None] = {}

    def times(self, site: Site, ways: Sequence[Edits], until: float) -> list[Timing | None]:
        """Compile those that are new, drop those that are wrong, and time the others by turns."""
        if site is not self._site:
            self._site, self._stage, self._built = site, KernelInputs(site, self.machine), {}
        # When the time is over, nothing new is compiled but what a comparison takes.
        calls = [
            None if number > 1 and self._is_late(edits, until) else self._call(edits)
            for number, edits in enumerate(ways)
        ]
        reference = calls[0]
        if reference is None:
            return [None] * len(ways)
        expected = self._results(reference)
        able = {
            str(number): call
            for number, call in enumerate(calls)
            if call is not None and _agree(self._results(call), expected)
        }
        timed = alternate(able, TIMING_ROUNDS, quiet=0.0005, before=self.cold, until=until)
        return [timed.get(str(number)) for number in range(len(ways))]

    def _results(self, call: Callable[[], object]) -> list[Array]:
        """What a call writes; where it writes nothing, ones are left."""
        assert self._stage is not None
        for array in self._stage.written:
            array.fill(1)
        call()
        return [array.copy() for array in self._stage.written]

    def _is_late(self, edits: Edits, until: float) -> bool:
        return tuple(sorted(edits.items())) not in self._built and time.perf_counter() >= until

    def _call(self, edits: Edits) -> Callable[[], object] | None:
        key = tuple(sorted(edits.items()))
        if key not in self._built:
            self._built[key] = self._compile(edits)
        return self._built[key]

    def _compile(self, edits: Edits) -> Callable[[], object] | None:
        assert self._site is not None and self._stage is not None
        try:
            single = self._stage.build(edit(self._site.choice, edits))
        except MonographError:
            return None
        native = Native(single.code, single.graph, self.threads, guards=(), verify=False)
        arrays = list(single.arrays)
        return lambda: native(arrays)


def _agree(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    """Whether results are the same but for the order of sums."""
    return all(_is_close(a, b) for a, b in zip(found, expected, strict=True))


def _is_close(found: Array, expected: Array) -> bool:
    if not np.issubdtype(expected.dtype, np.floating):
        return bool(np.array_equal(found, expected))
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        return False
    scale = float(np.max(np.abs(expected), where=finite, initial=0.0))
    apart = np.max(np.abs(found - expected), where=finite, initial=0.0)
    return float(apart) <= MAX_RELATIVE_DIFFERENCE * scale


class Search:
    """Looks for better ways to compute sites, within a time."""

    def __init__(
        self, bench: Bench, machine: Machine, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.bench = bench
        self.machine = machine
        self.clock = clock

    def run(
        self, sites: Sequence[Site], seconds: float, starts: Mapping[str, Edits] = NO_EDITS
    ) -> list[Finding]:
        """What came of the sites that there was time for, those that take most of a call first.

        ``starts`` are the edits to begin with, where an earlier search was not complete.
        """
        start = self.clock()
        end = start + seconds
        first = self._first_times(sites, start + FIRST_LOOK_SHARE * seconds)
        waiting = sorted(first, key=lambda site: first[site] * site.launches, reverse=True)
        findings = []
        for number, site in enumerate(waiting):
            announce("tuning", number, len(waiting))
            now = self.clock()
            if now >= end:
                break
            rest = sum(first[each] * each.launches for each in waiting[number:])
            share = first[site] * site.launches / rest if rest else 1.0
            begin = starts.get(site.digest, NO_EDITS)
            findings.append(self.site(site, first[site], now + (end - now) * share, begin))
        return findings

    def _first_times(self, sites: Sequence[Site], until: float) -> dict[Site, float]:
        """What each site takes as it is, large ones first; those that do not run have no time."""
        found = {}
        for number, site in enumerate(sorted(sites, key=bytes_moved, reverse=True)):
            announce("measuring", number, len(sites))
            if self.clock() >= until:
                break
            (timing,) = self.bench.times(site, [{}], self.clock())
            if timing is not None:
                found[site] = timing.best
        return found

    def site(self, site: Site, before: float, end: float, begin: Edits = NO_EDITS) -> Finding:
        """Turn one knob after another, and keep what is better, until the time is over."""
        best, tried = begin, 0
        turned = knobs(site.choice, self.machine) if before >= MIN_TUNED_SECONDS else {}
        for knob, values in turned.items():
            if self.clock() >= end:
                break
            fresh = [value for value in values if best.get(knob) != value]
            best = self._better(site, [best, *({**best, knob: value} for value in fresh)], end)
            tried += len(fresh)
        complete = not turned or self.clock() < end
        seconds = self._confirm(site, best, end) if best else None
        default, chosen = seconds or (before, before)
        kept = best if seconds is not None else {}
        return Finding(
            site.digest, site.name, site.launches, kept, default, chosen, tried, complete
        )

    def _better(self, site: Site, ways: Sequence[Edits], end: float) -> Edits:
        """The best of the ways, or the first if none is better by enough."""
        timed = self.bench.times(site, ways, end)
        now = timed[0]
        if now is None:
            return ways[0]
        least = min((each.best for each in timed if each is not None), default=now.best)
        if least >= MAX_STEP_TIME_SHARE * now.best:
            return ways[0]
        return next(
            way for way, each in zip(ways, timed, strict=True) if each and each.best == least
        )

    def _confirm(self, site: Site, edits: Edits, end: float) -> tuple[float, float] | None:
        """Seconds with the default and with the edits, if they are clearly faster once more."""
        default, chosen = self.bench.times(site, [{}, edits], end)
        if default is None or chosen is None or not is_clearly_faster(chosen, default):
            return None
        return default.median, chosen.median


def bytes_moved(site: Site) -> int:
    """About how many bytes all launches of a site read and write."""
    return site.launches * sum(likely_size(slot.nbytes) for slot in (*site.inputs, *site.outputs))


def is_clearly_faster(found: Timing, default: Timing) -> bool:
    """Whether both the usual and the best time are shorter by more than chance."""
    usual = found.median < MAX_WINNING_TIME_SHARE * default.median
    return usual and found.best < MAX_WINNING_TIME_SHARE * default.best


class TuningMemory:
    """What was found before on such a machine, by site; on disk, if there is a cache."""

    def __init__(self, cache: Cache | None, machine: Machine, threads: int | None) -> None:
        self.cache = cache
        self.cpu = machine.cpu
        self.parts = {"machine": repr(machine), "threads": str(threads), **toolchain()}

    def get(self, digest: str) -> tuple[Edits, bool] | None:
        """The edits of a site (none, if the default is best), and whether all were tried."""
        bundle = None if self.cache is None else self.cache.get(self._key(digest))
        if bundle is None:
            return None
        try:
            edits = read_edits(bundle.manifest.get("edits"))
            return edits, require_type(bundle.manifest.get("complete"), bool)
        except MonographError:
            return None

    def put(self, finding: Finding) -> None:
        """Remember what came of a site."""
        if self.cache is not None:
            manifest: dict[str, Json] = {
                "about": {"kind": "tuning", "model": finding.name, "target": self.cpu},
                "edits": dict(finding.edits),
                "complete": finding.complete,
            }
            self.cache.put(self._key(finding.digest), Bundle(manifest))

    def _key(self, digest: str) -> str:
        return cache_key({"tuning of": digest, **self.parts})


def memory_for(machine: Machine, threads: int | None, wanted: bool | None) -> TuningMemory:
    """The memory that the settings ask for; ``wanted`` overrules the environment."""
    config = Config.from_environment()
    use = config.cache if wanted is None else wanted
    return TuningMemory(open_cache(replace(config, cache=True)) if use else None, machine, threads)


def tune(
    sites: Sequence[Site],
    search: Search,
    seconds: float,
    memory: TuningMemory,
    compare: Callable[[Tuning], tuple[Timing, Timing]],
    building: float = 0.0,
) -> TuningReport:
    """Search for better ways, and see whether they make the whole program faster.

    ``compare`` builds the program with a tuning, which takes about ``building`` seconds, and times
    the default one and it by turns. The report says whether it is to take the place of the default
    one.
    """
    started = search.clock()
    known = {site.digest: old for site in sites if (old := memory.get(site.digest))}
    done = {digest: edits for digest, (edits, complete) in known.items() if complete}
    starts = {digest: edits for digest, (edits, _) in known.items()}
    fresh = [site for site in sites if site.digest not in done]
    for_search = max((1 - FINAL_LOOK_SHARE) * seconds - building, LEAST_SEARCH * seconds)
    found = search.run(fresh, for_search, starts) if fresh else []
    searched = {each.digest for each in found}
    recalled = [
        Finding(
            each.digest, each.name, each.launches, starts[each.digest], 0.0, 0.0, 0,
            each.digest in done, remembered=True,
        )
        for each in sites
        if each.digest in starts and each.digest not in searched
    ]  # fmt: skip
    missing = sum(site.digest not in searched for site in fresh)
    report = TuningReport((*found, *recalled), missing)
    if report.edits:
        announce("comparing")
        default, tuned = compare(Tuning(report.edits, edit))
        gain = default.median / tuned.median
        report = replace(report, gain=gain, kept=is_clearly_faster(tuned, default))
    for each in found:
        if report.kept or not each.edits:
            memory.put(each)
    return replace(report, seconds=search.clock() - started)

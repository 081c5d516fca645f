"""The gate in front of the README's table: what a set of results must hold to be published.

A table flatters without one false number in it: by leaving out the peer that is best at a kind of
work, the workload that was lost, or the version that was slower. So each family's peers are fixed
here, the best known ones among them; every workload of a published family needs a row; and all rows
are of one state of the compiler. ``find_gaps`` lists what is missing, and nothing is written until
that list is empty. A peer that refuses a workload, or dies of it, was asked: that is no gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.commit import UNKNOWN_COMMIT
from benchmarks.compile_time import Compiled
from benchmarks.results import Results, Row
from benchmarks.workloads import select

_MEMORY_BOUND = ("eager", "inductor", "xla", "ort", "openvino", "iree")
_LIBRARY_BOUND = ("eager", "prepacked", "ort", "openvino")
_WHOLE_MODELS = ("eager", "inductor", "max-autotune", "xla", "ort", "openvino", "iree")

REQUIRED_PEERS: dict[str, tuple[str, ...]] = {
    "matmul": _LIBRARY_BOUND,
    "convolution": _LIBRARY_BOUND,
    "attention": ("eager", "inductor", "xla", "ort", "openvino"),
    "models": _WHOLE_MODELS,
    "others": ("eager", "inductor", "ort", "openvino"),
    "recurrent": ("eager", "ort", "openvino"),
    "pointwise": _MEMORY_BOUND,
    "layout": _MEMORY_BOUND,
    "rows": _MEMORY_BOUND,
    "sums": _MEMORY_BOUND,
}
"""For each published family the peers that every row of it needs an answer from."""

COMPILE_TIME_PEERS = ("inductor", "max-autotune", "xla", "ort", "openvino", "iree")
"""The peers that compile, and whose seconds and memory stand beside ours."""

MAX_NAMES_PER_GAP = 4


def find_gaps(results: Results, compiled: Sequence[Compiled] = ()) -> list[str]:
    """What keeps these results from being published, a sentence each; none if nothing does."""
    gaps = [*_missing_rows(results), *_missing_peers(results), *_mixed_commits(results, compiled)]
    if results.machine.clock != "wall":
        gaps.append("times are of the processor's clock (--busy): a table needs the wall's")
    return [*gaps, *_missing_compile_times(compiled)]


def _missing_rows(results: Results) -> list[str]:
    """Families of which some workloads were not measured, or none."""
    measured = {row.name for row in results.rows}
    gaps = []
    for family in REQUIRED_PEERS:
        names = [each.name for each in select() if each.group == family]
        missing = [name for name in names if name not in measured]
        if missing:
            gaps.append(f"{family}: {len(missing)} of {len(names)} rows missing: {_list(missing)}")
    return gaps


def _missing_peers(results: Results) -> list[str]:
    """Peers that were not asked, for each family."""
    gaps = []
    for family, peers in REQUIRED_PEERS.items():
        rows = results.family(family).rows
        for peer in peers:
            missing = [row.name for row in rows if not was_asked(row, peer)]
            if missing:
                gaps.append(f"{family}: {peer} was not measured on {_list(missing)}")
    return gaps


def was_asked(row: Row, peer: str) -> bool:
    """Whether a peer took part in a workload: it has a time, or failed by its own doing."""
    outcome = row.outcomes.get(peer)
    return outcome is not None and not outcome.absent


def _mixed_commits(results: Results, compiled: Sequence[Compiled]) -> list[str]:
    """Rows of several states of the compiler, or of one that no commit has."""
    commits: dict[str, list[str]] = {}
    for name, commit in [
        *((row.name, row.commit) for row in results.rows),
        *((f"compiling {each.workload}", each.commit) for each in compiled),
    ]:
        commits.setdefault(commit, []).append(name)
    gaps = []
    if len(commits) > 1:
        parts = (f"{commit} ({_list(names)})" for commit, names in commits.items())
        gaps.append(f"rows are of different commits: {'; '.join(parts)}")
    for commit in commits:
        if commit == UNKNOWN_COMMIT or commit.endswith("-dirty"):
            gaps.append(f"the compiler's source was of no commit: {commit}")
    return gaps


def _missing_compile_times(compiled: Sequence[Compiled]) -> list[str]:
    """Peers whose compile time and memory were not measured beside ours."""
    gaps = [] if compiled else ["compile times were not measured"]
    for workload in dict.fromkeys(each.workload for each in compiled):
        asked = {each.peer for each in compiled if each.workload == workload and not each.absent}
        missing = [peer for peer in COMPILE_TIME_PEERS if peer not in asked]
        if missing:
            gaps.append(f"compiling {workload}: not measured with {', '.join(missing)}")
    return gaps


def _list(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    shown = ", ".join(names[:MAX_NAMES_PER_GAP])
    more = len(names) - MAX_NAMES_PER_GAP
    return shown if more <= 0 else f"{shown} and {more} others"

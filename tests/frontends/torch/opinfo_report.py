"""The results of a run over OpInfo as tables of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch

WIDTH = 80

MEANINGS = {
    "agree": "every result equals eager's",
    "given draws": "equal, on the random numbers that eager drew",
    "random": "types are equal; values are drawn or unset",
    "fallback": "equal, but an op was left to torch",
    "mismatch": "a result differs",
    "unsupported": "an op, dtype or layout that we have not",
    "error": "import or interpreter failed",
    "untraceable": "torch itself gives no graph",
}

ERROR_MEANINGS = {
    "refused by torch": "an error while torch traces",
    "refused at import": "an error of ours while the graph is read",
    "refused at run": "an error of ours while the graph runs",
    "eager accepts": "eager gives no error either; values equal",
    "value": "a value where eager gives an error",
    "crash": "an exception that is not one of our errors",
}

PASSED = ("agree", "given draws", "random")
REFUSED = ("refused by torch", "refused at import", "refused at run")


@dataclass
class OpResult:
    """How the samples of one op fared."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    core: dict[str, list[int]] = field(default_factory=dict)
    seconds: float = 0.0
    interpreted: list[tuple[str, ...]] = field(default_factory=list)
    """For each sample that native code does not run all of, the ops that it leaves out."""

    def add(self, kind: str, reason: str = "") -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if reason:
            text = f"{kind}: {reason}"
            self.reasons[text] = self.reasons.get(text, 0) + 1

    def add_core(self, name: str, passed: bool) -> None:
        """Count a sample of an op of core ATen."""
        entry = self.core.setdefault(name, [0, 0])
        entry[0] += passed
        entry[1] += 1

    def count(self, kind: str) -> int:
        return self.counts.get(kind, 0)

    @property
    def samples(self) -> int:
        return sum(self.counts.values())

    @property
    def passed(self) -> int:
        kinds = (*PASSED, *REFUSED, "eager accepts")
        return sum(self.count(kind) for kind in kinds)


@cache
def core_ops() -> frozenset[str]:
    """The names of torch's core ATen ops."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is not None and torch.Tag.core in overload.tags:
            found.add(name)
    return frozenset(found)


def print_report(results: Sequence[OpResult], everything: bool, errors: bool) -> None:
    """Totals, then every reason why a sample does not pass, then the ops of core ATen."""
    meanings = ERROR_MEANINGS if errors else MEANINGS
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.counts)
    samples = sum(total.values())
    whole = sum(result.passed == result.samples for result in results)
    print(f"{len(results)} entries, {samples} samples; {whole} entries whole\n")
    _print_totals(total, samples, meanings)
    if everything:
        _print_entries(results)
    _print_reasons(results)
    _print_interpreted(results)
    if not errors:
        _print_core(results)


def _print_totals(total: Mapping[str, int], samples: int, meanings: Mapping[str, str]) -> None:
    for kind, meaning in meanings.items():
        count = total.get(kind, 0)
        share = 100 * count / max(samples, 1)
        print(f"{kind:<17} {count:>6} {share:>6.2f} %  {meaning}"[:WIDTH])


def _print_entries(results: Sequence[OpResult]) -> None:
    print(f"\n{'entry':<56} {'samples':>7} {'whole':>7} {'s':>6}")
    for result in sorted(results, key=lambda each: each.name):
        print(f"{result.name:<56} {result.samples:>7} {result.passed:>7} {result.seconds:>6.1f}")


def _print_interpreted(results: Sequence[OpResult]) -> None:
    """How many compiled samples ran a node in the interpreter, and of which ops."""
    touched = [ops for result in results for ops in result.interpreted]
    if not touched:
        return
    counts = Counter(op for ops in touched for op in ops)
    print(f"\n{len(touched)} samples ran some node in the interpreter:")
    print("  " + ", ".join(f"{op} {count}" for op, count in counts.most_common()))


def _print_reasons(results: Sequence[OpResult]) -> None:
    """Each reason with the number of samples and the entries that it befalls."""
    counts: Counter[str] = Counter()
    entries: dict[str, list[str]] = {}
    for result in results:
        for reason, count in result.reasons.items():
            if reason.split(":")[0] in PASSED:
                continue
            counts[reason] += count
            entries.setdefault(reason, []).append(result.name)
    if not counts:
        return
    print("\nsamples  reason, entries")
    for reason, count in counts.most_common():
        print(f"{count:>7}  {_wrapped(reason)}")
        print(f"         {_wrapped(', '.join(sorted(entries[reason])))}")


def _wrapped(text: str) -> str:
    return f"\n{' ' * 11}".join(textwrap.wrap(text, WIDTH - 11)) or text


def _print_core(results: Sequence[OpResult]) -> None:
    passed: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    failing: dict[str, list[str]] = {}
    for result in results:
        for name, (good, count) in result.core.items():
            passed[name] += good
            seen[name] += count
            if good < count:
                failing.setdefault(name, []).append(result.name)
    print(f"\ncore ATen: {len(core_ops())} ops; {len(seen)} have samples of their own here,")
    print(f"{len(seen) - len(failing)} of those at 100 %")
    for name in sorted(failing):
        share = 100 * passed[name] / seen[name]
        where = f"fails in {', '.join(sorted(failing[name]))}"
        print(f"  {name:<26} {passed[name]:>6} of {seen[name]:>6} {share:>6.2f} %")
        print(f"         {_wrapped(where)}")
    absent = sorted(core_ops() - set(seen))
    if len(absent) < len(seen):
        print("without samples of their own:")
        print(f"         {_wrapped(', '.join(absent))}")

"""What the compiler consists of, a line each: passes, ops, targets, rules, families and switches.

Every list is read from the registries themselves, plugins and entry points included.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.page import wrap
from monograph.ir.op import all_ops
from monograph.passes.base import RewritePass, all_passes, make_pass
from monograph.passes.manager import passes_of
from monograph.passes.pipeline import LEVELS
from monograph.passes.simplify import Simplify
from monograph.rewrite.proofs import PROVED_PASSES, UNPROVED, proof_status
from monograph.rewrite.rule import Rule
from monograph.switches import SWITCHES
from monograph.targets.names import target_names

MOST_NAME = 24
"""Characters of a name that the other lines make room for."""


@dataclass(frozen=True)
class Item:
    """One thing of a kind: its name, what it is, and facts by name."""

    name: str
    summary: str
    facts: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """Why something is not as it might be expected."""


def catalogue(kind: str) -> list[Item]:
    """Everything of a kind, in alphabetical order; families and rules in the order they are tried.

    An unknown kind is an error that lists the kinds.
    """
    if kind not in KINDS:
        raise InputError(
            f"there is no list of {kind!r}", expected=", ".join(KINDS), found=repr(kind)
        )
    return KINDS[kind]()


def catalogue_text(kind: str, items: Sequence[Item]) -> str:
    """A line for each: its name, its facts, and what it is."""
    widest = min(max((len(item.name) for item in items), default=0), MOST_NAME)
    proofs = Counter(each.facts["proof"] for each in items if "proof" in each.facts)
    counted = ", ".join(f"{count} {proof}" for proof, count in proofs.most_common())
    lines = [f"{len(items)} {kind}" + (f": {counted}" if counted else "")]
    for item in items:
        facts = ", ".join(fact for fact in item.facts.values() if fact)
        told = f"{facts}: {item.summary}" if facts else item.summary
        note = f" ({item.note})" if item.note else ""
        lines += wrap(f"  {item.name:<{widest}}  ", told + note)
    return "\n".join(lines)


def all_rules() -> list[tuple[str, Rule]]:
    """Every rewrite rule with the pass that applies it, in the order in which they are tried."""
    found: list[tuple[str, Rule]] = []
    for name, cls in all_passes().items():
        if issubclass(cls, RewritePass):
            made = make_pass(name, fast_math=True) if cls is Simplify else make_pass(name)
            assert isinstance(made, RewritePass)
            found += [(name, rule) for rule in made.rules()]
    return found


def _passes() -> list[Item]:
    levels: dict[str, list[str]] = {}
    for level, pipeline in LEVELS.items():
        for name in dict.fromkeys(each.name for each in passes_of(pipeline)):
            levels.setdefault(name, []).append(level)
    return [
        Item(name, _first_line(cls), {"levels": " ".join(levels.get(name, ()))})
        for name, cls in all_passes().items()
    ]


def _ops() -> list[Item]:
    return [
        Item(
            name,
            _first_line(cls),
            {"family": cls.family.value, "kind": "composite" if cls.is_composite() else ""},
        )
        for name, cls in sorted(all_ops().items())
    ]


def _targets() -> list[Item]:
    return [Item(name, summary) for name, summary in target_names().items()]


def _rules() -> list[Item]:
    return [
        Item(
            rule.name,
            rule.floats,
            {
                "pass": name,
                "proof": proof_status(name, rule.name),
                "fast_math": "fast_math" if rule.fast_math else "",
            },
            UNPROVED.get(rule.name, "") if name in PROVED_PASSES else "",
        )
        for name, rule in all_rules()
    ]


def _families() -> list[Item]:
    from monograph.targets.cpu.plans.families import GROUP_FAMILIES, KERNEL_FAMILIES

    return [
        Item(each.name, _first_line(each.plan), {"switch": each.switch or ""})
        for each in (*GROUP_FAMILIES, *KERNEL_FAMILIES)
    ]


def _switches() -> list[Item]:
    return [Item(name, f"turns off {what}") for name, what in SWITCHES.items()]


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


KINDS: Mapping[str, Callable[[], list[Item]]] = {
    "passes": _passes,
    "ops": _ops,
    "targets": _targets,
    "rules": _rules,
    "families": _families,
    "switches": _switches,
}
"""Every kind that there is a list of."""

"""``monograph ops``: what the compiler knows of each op."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from monograph.cli import common, completion
from monograph.errors import InputError
from monograph.ir.op import Family, Op, Trait, lookup, registry


def ops(
    name: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.ops, help="Show everything about one op."),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            autocompletion=completion.families,
            help="Only one family: compute, data, shape, control, memory.",
        ),
    ] = None,
    plugins: common.Plugins = None,
) -> None:
    """List the ops, or show what the compiler knows of one."""
    if name is not None:
        _show(lookup(name))
        return
    families = [each.value for each in Family]
    if family is not None and family not in families:
        raise InputError(f"there is no family {family!r}", expected=", ".join(families))
    chosen = [c for c in registry().values() if family in (None, c.family.value)]
    table = Table(title=f"{len(chosen)} ops", title_justify="left")
    for heading in ("op", "family", "kind", "gradient", "what it is"):
        table.add_column(heading)
    for cls in sorted(chosen, key=lambda c: (c.family.value, c.name)):
        kind = "composite" if cls.is_composite() else "primitive"
        gradient = "yes" if cls.is_differentiable() or cls.is_composite() else "-"
        table.add_row(cls.name, cls.family.value, kind, gradient, _summary(cls))
    Console().print(table)


def _show(cls: type[Op]) -> None:
    operands = ", ".join(cls.operand_names)
    traits = ", ".join(t.name.lower() for t in Trait if t.name and t in cls.traits and t.value)
    rows: list[tuple[str, str]] = [
        ("op", f"{cls.name}({operands})"),
        ("family", cls.family.value),
        ("kind", "composite" if cls.is_composite() else "primitive"),
        ("traits", traits or "-"),
        ("attributes", _attributes(cls)),
        ("samples", str(sum(1 for _ in cls.samples()))),
    ]
    table = Table(show_header=False, box=None)
    for label, text in rows:
        table.add_row(f"[bold]{label}", text)
    console = Console()
    console.print(table)
    console.print("\n" + _paragraphs(cls))


def _attributes(cls: type[Op]) -> str:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    described = []
    for attribute in fields:
        default = attribute.default
        shown = "" if default is dataclasses.MISSING else f" = {default}"
        described.append(f"{attribute.name}: {attribute.type}{shown}")
    return "\n".join(described) or "-"


def _summary(cls: type[Op]) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


def _paragraphs(cls: type[Op]) -> str:
    lines = [line.strip() for line in (cls.__doc__ or "").strip().splitlines()]
    return "\n".join(lines)

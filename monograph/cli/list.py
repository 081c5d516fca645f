"""``monograph list``: what the compiler consists of."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from monograph.cli import common


class Category(StrEnum):
    """What there is a list of (``inspect.catalogue.KINDS``)."""

    passes = "passes"
    ops = "ops"
    targets = "targets"
    rules = "rules"
    families = "families"
    switches = "switches"


def list_items(
    kind: Annotated[Category, typer.Argument(help="What to list.")],
    plugins: common.Plugins = None,
    as_json: common.AsJson = False,
) -> None:
    """List passes, ops, targets, rewrite rules, kernel families or switches, a line each.

    Those of plugins, and of packages with entry points, are among them.

    - monograph list passes
    - monograph list rules --json
    """
    from monograph.inspect.catalogue import catalogue, catalogue_text
    from monograph.inspect.jsonable import jsonable

    items = catalogue(kind.value)
    print(json.dumps(jsonable(items), indent=2) if as_json else catalogue_text(kind.value, items))

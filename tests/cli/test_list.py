"""``monograph list``: everything the compiler consists of, a line each."""

from __future__ import annotations

import json
import re

import pytest

from monograph.cli.list import Category
from monograph.inspect.catalogue import KINDS, catalogue
from tests.cli.running import invoke, output_of


def test_the_command_knows_every_kind() -> None:
    assert [kind.value for kind in Category] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_has_a_line_that_says_what_it_is(kind: str) -> None:
    printed = output_of("list", kind)
    items = catalogue(kind)
    assert printed.splitlines()[0].partition(":")[0] == f"{len(items)} {kind}"
    assert max(map(len, printed.splitlines())) <= 80
    assert len({item.name for item in items}) == len(items) > 5
    for item in items:
        assert item.summary, item.name
        assert re.search(rf"^  {re.escape(item.name)} ", printed, re.MULTILINE)
    assert [each["name"] for each in json.loads(output_of("list", kind, "--json"))] == [
        item.name for item in items
    ]


def test_rules_are_counted_by_what_is_proved_of_them() -> None:
    items = catalogue("rules")
    head = output_of("list", "rules").splitlines()[0]
    for proof in ("proved", "tested", "unproved"):
        assert f"{sum(item.facts['proof'] == proof for item in items)} {proof}" in head


def test_passes_say_at_which_levels_they_run() -> None:
    facts = {item.name: item.facts for item in catalogue("passes")}
    assert facts["cse"]["levels"] == "O1 O2 O3"


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    done = invoke("list", "pases")
    assert done.exit_code == 2
    assert "passes" in done.output

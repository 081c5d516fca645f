"""The book keeps its shape: its pictures are what their code draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pictures.drawings import PICTURES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_picture_is_of_a_chapter() -> None:
    drawn = {path.stem for path in (DOCS / "pictures").glob("*.svg")}
    assert drawn == set(PICTURES)
    for name in PICTURES:
        assert f"](pictures/{name}.svg)" in (DOCS / f"{name}.md").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_code_draws(name: str) -> None:
    committed = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert PICTURES[name]() == committed, "draw it anew: make pictures"

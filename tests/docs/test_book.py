"""The book keeps its shape: chapters in a row, short, each with a question and a drawn picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pictures.drawings import PICTURES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = sorted(DOCS.glob("[0-9]*-*.md"), key=lambda page: int(page.name.split("-")[0]))
MAX_CHAPTER_LINES = 200


def test_chapters_are_numbered_in_a_row() -> None:
    assert [int(page.name.split("-")[0]) for page in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_a_chapter_is_short_and_begins_with_its_question(page: Path) -> None:
    text = page.read_text()
    lines = text.splitlines()
    assert lines[0].startswith(f"# {page.name.split('-')[0]}. ")
    question = " ".join(text.split("\n\n")[1].split())
    assert question.startswith("**") and question.endswith("?**"), question
    assert len(lines) <= MAX_CHAPTER_LINES
    assert "\n## Read the source\n" in text
    assert f"](pictures/{page.stem}.svg)" in text


def test_the_table_of_contents_lists_every_chapter_in_order() -> None:
    for table in (ROOT / "README.md", DOCS / "README.md"):
        entry = r"^(\d+)\. \[[^]]+\]\((?:docs/)?(\d+-[\w-]+)\.md\)"
        listed = re.findall(entry, table.read_text(), re.MULTILINE)
        assert listed == [(page.name.split("-")[0], page.stem) for page in CHAPTERS], table


def test_every_picture_is_of_a_chapter() -> None:
    drawn = {path.stem for path in (DOCS / "pictures").glob("*.svg")}
    assert drawn == set(PICTURES) == {page.stem for page in CHAPTERS}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_code_draws(name: str) -> None:
    committed = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert PICTURES[name]() == committed, "draw it anew: make pictures"

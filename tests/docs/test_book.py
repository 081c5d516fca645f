"""The book keeps its shape: chapters in a row, short, each with a question and a drawn picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pictures.drawings import PICTURES
from monograph.inspect.catalogue import catalogue

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = sorted(DOCS.glob("[0-9]*-*.md"), key=lambda page: int(page.name.split("-")[0]))
MAX_CHAPTER_LINES = 200
MAX_DECISION_WORDS = 400


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


DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_fits_on_a_page(page: Path) -> None:
    assert len(page.read_text().split()) <= MAX_DECISION_WORDS, (
        "move measurements to benchmarks/notes"
    )


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "decisions" / "README.md").read_text())
    assert sorted(listed) == sorted(page.name for page in DECISIONS)


def test_every_source_file_that_a_page_names_exists() -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("monograph", "tests", "benchmarks", "examples", "docs")
        for path in (ROOT / folder).rglob("*.py")
    ]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
        for name in re.findall(r"`((?:[a-z]\w*/)+\w+\.py)`", page.read_text())
        if not any(file == name or file.endswith(f"/{name}") for file in files)
    ]
    assert missing == []


def test_the_page_of_passes_has_every_pass() -> None:
    text = (DOCS / "passes.md").read_text()
    ours = [item.name for item in catalogue("passes")]
    assert [name for name in ours if f"**`{name}`**" not in text] == []

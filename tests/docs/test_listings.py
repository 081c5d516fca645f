"""Every listing in the README and the book runs, and prints what the page says it prints.

A fenced ``python`` block is executed; the blocks of one page share a namespace. A ``text`` block
that follows one directly is what it must print, to the letter. Blocks of other languages are prose.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Listing:
    line: int
    code: str
    output: str | None


def listings(page: Path) -> list[Listing]:
    """The python blocks of a page, each with the text block that follows it directly, if any."""
    text = page.read_text()
    blocks = [(match[1], match[2], match.start(), match.end()) for match in FENCE.finditer(text)]
    found = []
    for index, (language, body, start, end) in enumerate(blocks):
        if language != "python":
            continue
        output = None
        if index + 1 < len(blocks):
            after_language, after_body, after_start, _ = blocks[index + 1]
            if after_language == "text" and not text[end:after_start].strip():
                output = after_body
        found.append(Listing(text.count("\n", 0, start) + 2, body, output))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_listings_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any("import jax" in listing.code for listing in listings(page)):
        pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONOGRAPH_VERIFY", raising=False)  # as readers run it: that skips the cache
    namespace: dict[str, object] = {"__name__": "listing"}
    for listing in listings(page):
        padded = "\n" * (listing.line - 1) + listing.code
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(padded, page.name, "exec", dont_inherit=True), namespace)
        if listing.output is not None:
            assert printed.getvalue().rstrip() == listing.output.rstrip(), (
                f"{page.name}:{listing.line}"
            )


def test_the_book_has_listings() -> None:
    chapters = [page for page in PAGES if page.parent.name == "docs" and page.name[0].isdigit()]
    assert chapters
    for page in chapters:
        assert listings(page), f"{page.name} shows no code"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"

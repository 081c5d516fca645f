"""The glossary: each term once, and each file that it points at exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| (?!term)(.+?) \| (.+?) \| `(.+?)` \|$",
    (ROOT / "docs" / "glossary.md").read_text(),
    re.MULTILINE,
)


def test_the_glossary_has_the_fields_words() -> None:
    terms = [term for term, _, _ in ROWS]
    assert len(terms) >= 80
    assert len(terms) == len(set(terms))


def test_every_file_that_the_glossary_points_at_exists() -> None:
    missing = {path for _, _, path in ROWS if not (ROOT / path).is_file()}
    assert not missing

"""The table of LLVM's ideas names files of this project that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_table_names_exists() -> None:
    text = (ROOT / "docs" / "formats.md").read_text()
    table = text[text.index("| LLVM | here | file |") :]
    rows = [line for line in table.split("\n")[2:] if line.startswith("|")]
    named = {row: re.findall(r"`([\w/]+\.py)`", row.rsplit("|", 2)[1]) for row in rows}
    assert len(rows) >= 20 and all(named.values())
    missing = [path for paths in named.values() for path in paths if not (ROOT / path).is_file()]
    assert missing == []

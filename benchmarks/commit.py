"""Which state of the compiler is measured: the last commit that changed its source."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNKNOWN_COMMIT = "unknown"


def find_commit(root: Path = ROOT) -> str:
    """The last commit that changed the compiler; ``…-dirty`` if its files were edited since.

    Benchmarks and documents change while a table is measured; what is measured may not.
    """
    last = _git(root, "log", "-1", "--format=%h", "--", "monograph")
    if not last:
        return UNKNOWN_COMMIT
    edited = _git(root, "status", "--porcelain", "--", "monograph")
    return f"{last}-dirty" if edited else last


def _git(root: Path, *arguments: str) -> str:
    """What git prints, or nothing where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

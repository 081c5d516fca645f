"""``monograph cache``: what the disk cache holds, and making it smaller."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import monograph
from monograph.cli.main import app
from monograph.inspect.cached import age_text, parse_age, parse_bytes, prunable, size_text
from monograph.runtime.cache import StoredEntry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two programs, one of them not used for a month, and a file of somebody's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(folder))
    monkeypatch.setenv("MONOGRAPH_VERIFY", "0")
    for size, name in ((4, "small"), (8, "larger")):
        graph = monograph.trace(lambda x: x + x * x, f"f32[{size}]")
        graph.name = name
        monograph.compile(graph)(np.ones(size, "f4"))
        if name == "small":
            then = time.time() - 30 * 86400
            for path in folder.iterdir():
                os.utime(path, (then, then))
    (folder / "notes.txt").write_text("mine")
    return folder


def invoke(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["cache", *arguments], input=answer)


def models(*arguments: str) -> set[str]:
    told = json.loads(invoke("ls", "--json").stdout)
    return {each["model"] for each in told["entries"] if each["kind"] == "program"}


def test_entries_are_listed_with_model_target_and_age(folder: Path) -> None:
    printed = invoke("ls").stdout
    assert printed.startswith(f"{folder}: ")
    (small,) = (line for line in printed.splitlines() if line.split()[:1] == ["small"])
    assert small.split()[1:4] == ["program", "cpu", "2"]
    assert small.endswith("30 d ago")
    assert models() == {"small", "larger"}


def test_what_was_not_used_goes(folder: Path) -> None:
    done = invoke("prune", "--older-than", "7d", "--yes")
    assert done.exit_code == 0, done.output
    assert models() == {"larger"}
    assert "nothing to remove" in invoke("prune", "--older-than", "7d", "--yes").stdout


def test_nothing_goes_if_somebody_objects(folder: Path) -> None:
    assert "nothing was removed" in invoke("clear", answer="n\n").stdout
    assert models() == {"small", "larger"}
    assert invoke("clear", answer="").exit_code == 1  # nobody is there to ask


def test_only_the_caches_own_files_are_removed(folder: Path) -> None:
    assert invoke("clear", "--yes").exit_code == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_damaged_entry_is_shown_and_pruned(folder: Path) -> None:
    path = max(folder.glob("*.mono"), key=lambda each: each.stat().st_mtime)
    path.write_bytes(b"PK\3\4 and nothing else")
    assert "damaged" in invoke("ls").stdout
    invoke("prune", "--keep", "1G", "--yes")
    assert not path.exists()


def test_a_folder_that_is_not_private_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o777)
    done = invoke("clear", "--yes")
    assert "others may write to it" in str(done.exception)
    assert list(folder.glob("*.mono"))


def test_prune_must_be_told_what() -> None:
    assert "nothing says what may go" in str(invoke("prune").exception)


def entry(key: str, nbytes: int, used: float, kind: str | None = "program") -> StoredEntry:
    return StoredEntry(key, nbytes, used, kind, "main", None, "cpu")


def test_the_least_recently_used_go_first() -> None:
    entries = [entry("a", 10, 100.0), entry("b", 10, 300.0), entry("c", 10, 200.0)]
    assert [each.key for each in prunable(entries, keep_bytes=20, now=400.0)] == ["a"]
    assert [each.key for each in prunable(entries, keep_bytes=5, now=400.0)] == ["a", "b", "c"]
    old = prunable(entries, older_than=150.0, now=400.0)
    assert [each.key for each in old] == ["a", "c"]
    damaged = [*entries, entry("d", 10, 400.0, None)]
    assert [each.key for each in prunable(damaged, keep_bytes=100, now=400.0)] == ["d"]


def test_sizes_and_ages_are_read_and_written() -> None:
    assert (parse_bytes("12"), parse_bytes("1.5K"), parse_bytes("2 GiB")) == (12, 1536, 2 << 30)
    assert (parse_age("90s"), parse_age("2h"), parse_age("1w")) == (90.0, 7200.0, 604800.0)
    assert (size_text(12), size_text(3 << 19), size_text(5 << 30)) == ("12 B", "1.5 MiB", "5.0 GiB")
    assert (age_text(5), age_text(3600 * 5)) == ("just now", "5 h ago")
    for wrong in ("", "many", "-1", "1T"):
        with pytest.raises(monograph.MonographError, match="is no size"):
            parse_bytes(wrong)

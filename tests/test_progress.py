"""Announcements are heard in a block, and nowhere else; the bar shows only what takes long."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

import monograph
from monograph import functional as F
from monograph.cli import common
from monograph.compiler import Options, compile_graph
from monograph.progress import announce, listening


def test_a_compiler_tells_its_stages_in_order() -> None:
    heard: list[str] = []
    graph = monograph.trace(lambda x: F.exp(x) @ x, "f32[4, 4]")
    with listening(lambda stage, done, total: heard.append(stage)):
        compile_graph(graph, Options(cache=False))
    assert list(dict.fromkeys(heard)) == ["passes", "lowering", "fusion", "kernels", "llvm"]
    announce("nobody listens")
    assert "nobody listens" not in heard


def shown(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, terminal: bool, stage: str = "kernels"
) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(
        common,
        "Console",
        lambda **_: Console(file=stream, force_terminal=terminal, width=80, legacy_windows=False),
    )
    monkeypatch.setattr(common, "SECONDS_WITHOUT_PROGRESS", 0.2)
    with common.showing_progress("compiling"):
        announce(stage, 3, 8)
        time.sleep(seconds)
    return stream.getvalue()


def test_a_bar_shows_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 0.6, terminal=True)
    assert "compiling: kernels" in text
    assert "3/8" in text


def test_a_long_stage_leaves_room_for_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 0.6, terminal=True, stage="a pass with many options, " * 9)
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
    drawn = [line for line in lines if "compiling: a pass" in line]
    assert drawn and max(map(len, lines)) <= 80
    assert all("3/8" in line and "0:00:0" in line for line in drawn)


def test_what_is_quick_or_not_on_a_terminal_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "kernels" not in shown(monkeypatch, 0.0, terminal=True)
    assert shown(monkeypatch, 0.6, terminal=False) == ""

"""Announcements are heard in a block, and nowhere else; the bar shows only what takes long."""

from __future__ import annotations

import io
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


def shown(monkeypatch: pytest.MonkeyPatch, seconds: float, *, terminal: bool) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(
        common,
        "Console",
        lambda **_: Console(file=stream, force_terminal=terminal, width=80, legacy_windows=False),
    )
    monkeypatch.setattr(common, "PATIENCE", 0.2)
    with common.showing_progress("compiling"):
        announce("kernels", 3, 8)
        time.sleep(seconds)
    return stream.getvalue()


def test_a_bar_shows_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 0.6, terminal=True)
    assert "compiling: kernels" in text
    assert "3/8" in text


def test_what_is_quick_or_not_on_a_terminal_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "kernels" not in shown(monkeypatch, 0.0, terminal=True)
    assert shown(monkeypatch, 0.6, terminal=False) == ""

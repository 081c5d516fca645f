"""Log messages of the compiler's stages, through Python's own ``logging``.

Every stage has a logger, ``monograph.passes`` and so on. Nothing is printed unless somebody asks:
a program sets levels and handlers as for any library, and a person sets ``MONOGRAPH_LOG``:

    MONOGRAPH_LOG=passes,+fusion     a line for each pass, and all there is to say about fusion
    MONOGRAPH_LOG=all,-cache         every stage but one
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from monograph.errors import InputError

STAGES: Mapping[str, str] = {
    "cache": "what the disk cache had, and what was put there",
    "passes": "each pass: its time, what it changed, the rules that applied",
    "fusion": "which nodes share a kernel, and why",
    "assemble": "slots and steps; every kernel's plan and loops",
    "emit": "the code, and how long each part of making it took",
    "load": "when a program was linked into the process",
    "plugins": "what other packages bring in by their entry points",
}
"""Each stage that logs, and what it says."""

_ROOT = "monograph"
_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}
_followed: str | None = None
_handler: logging.Handler | None = None


def stage_logger(stage: str) -> logging.Logger:
    """The logger of a stage."""
    assert stage in STAGES, f"there is no stage {stage!r}"
    return logging.getLogger(f"{_ROOT}.{stage}")


def follow_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Do what ``MONOGRAPH_LOG`` asks for, if that has changed since it was last looked at."""
    global _followed
    text = environment.get("MONOGRAPH_LOG", "")
    if text == (_followed or ""):
        return
    levels = parse_levels(text)
    _followed = text
    for stage in STAGES:
        stage_logger(stage).setLevel(levels.get(stage, logging.NOTSET))
    _print_to_stderr(bool(levels))


def parse_levels(text: str) -> dict[str, int]:
    """The level of each stage that is named: ``passes`` INFO, ``+passes`` DEBUG, ``-passes`` ERROR.

    ``all`` names every stage; what comes later overrules what came before.
    """
    levels: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        sign = part[0] if part[0] in "+-" else ""
        name = part.removeprefix(sign)
        if name != "all" and name not in STAGES:
            raise InputError(
                f"MONOGRAPH_LOG names {name!r}, which is no stage",
                expected=f"all, {', '.join(STAGES)}; +stage for more, -stage for errors alone",
                found=repr(text),
            )
        for stage in STAGES if name == "all" else (name,):
            levels[stage] = _LEVELS[sign]
    return levels


def _print_to_stderr(wanted: bool) -> None:
    """Print messages, unless the program has handlers of its own that see them."""
    global _handler
    root = logging.getLogger(_ROOT)
    if _handler is not None:
        root.removeHandler(_handler)
        _handler = None
    if wanted and not root.hasHandlers():
        _handler = logging.StreamHandler()
        _handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        root.addHandler(_handler)

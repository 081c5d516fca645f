"""``monograph tour``: see every step at work, each as a question and its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from monograph.cli.common import showing_progress
from monograph.errors import InputError


def tour(
    short: Annotated[
        bool, typer.Option("--short", help="Only the worked examples and their figures.")
    ] = False,
    phase: Annotated[
        int | None, typer.Option("--phase", help="Only one chapter, by its number (1 to 9).")
    ] = None,
) -> None:
    """Walk through the compiler: build, evaluate, differentiate, optimise and compile a graph."""
    from monograph.inspect.tour import examples, native, phases
    from monograph.inspect.tour.page import Page

    chapters: list[Callable[[Page], None]] = [
        phases.build,
        phases.evaluate,
        phases.backward,
        phases.optimise,
        phases.compare,
        examples.show_wasteful,
        examples.show_gelu,
        examples.show_residual,
        partial(native.show_native, waiting=showing_progress),
    ]
    if phase is not None and not 1 <= phase <= len(chapters):
        raise InputError(f"there is no chapter {phase}", expected=f"1 to {len(chapters)}")
    if phase is not None:
        chosen = chapters[phase - 1 : phase]
    else:
        chosen = chapters[5:] if short else chapters
    page = Page()
    for chapter in chosen:
        chapter(page)
    if short:
        page.say("`monograph tour` has five more chapters: how graphs are built, evaluated, "
                 "differentiated, optimised and compared.")  # fmt: skip

"""``monograph doctor``: what is installed, what the machine can do, and what is wrong."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from monograph.cli import common
from monograph.cli.exit_codes import FINDING


def doctor(
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="Measure bandwidth and peak, if not known."),
    ] = True,
    as_json: common.AsJson = False,
) -> None:
    """Say what is installed, what the compiler makes of this machine, and what is wrong.

    Versions, extras, processor, GPU, cache, measured bandwidth and peak; a small program is
    compiled and checked. Exit code 3 if something does not work.

    - monograph doctor
    """
    from monograph.inspect.doctor import examine
    from monograph.inspect.jsonable import jsonable

    with common.showing_progress("examining"):
        found = examine(measures=measure)
    told = jsonable(found) | {"is_well": found.is_well}
    print(json.dumps(told, indent=2) if as_json else found)
    if not found.is_well:
        raise typer.Exit(FINDING)

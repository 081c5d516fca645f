"""Edits of choices (``targets.cpu.tuning``) as they come out of a file."""

from __future__ import annotations

from monograph.errors import MonographError
from monograph.program.records import require_type
from monograph.runtime.bundle import Json

MAX_KNOB_VALUE = 1 << 30
"""The largest number that a knob can have."""
FORMER_NAMES = {"keep": "cache_row"}
"""Knobs that had another name when a file was written."""


def read_edits(value: Json) -> dict[str, int]:
    """Knobs by name, and a number for each."""
    found = {}
    for name, number in require_type(value, dict).items():
        if not 0 <= require_type(number, int) <= MAX_KNOB_VALUE:
            raise MonographError(f"{number} is no number for a knob")
        name = require_type(name, str)
        found[FORMER_NAMES.get(name, name)] = number
    return found

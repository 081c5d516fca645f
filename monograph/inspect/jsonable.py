"""Results as JSON: dataclasses become dictionaries, and what JSON has no word for becomes text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """The same as dictionaries, lists, strings and finite numbers, which any reader takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return jsonable(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)

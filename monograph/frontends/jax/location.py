"""Where in the user's program an equation came from."""

from __future__ import annotations

from typing import Any

from jax._src import source_info_util

from monograph.ir.location import Location


def location_of(equation: Any) -> Location:
    """The user's line that made an equation, and the ``jax.named_scope`` that it stands in."""
    info = equation.source_info
    scope = str(info.name_stack)
    frame = source_info_util.user_frame(info.traceback)
    if frame is None:
        return Location("<jaxpr>", 0, equation.primitive.name, scope)
    return Location(frame.file_name, frame.start_line, frame.function_name, scope)

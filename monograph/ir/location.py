"""Where in the user's program a node came from. A location survives every rewrite."""

from __future__ import annotations

import os
import sys
from types import FrameType

from monograph.dataclass import dataclass

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file, the function it stands in, and the module path that a frontend knows."""

    file: str
    line: int
    function: str = ""
    scope: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}"
        if self.function:
            text += f" in {self.function}"
        if self.scope:
            text += f" ({self.scope})"
        return text


def caller() -> Location | None:
    """The innermost frame outside the package: the line that the user wrote."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE):
            return Location(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None

"""The road in twelve files, as the book lists it, is the one that a compilation takes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import monograph
from monograph import functional as F

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| \[(monograph/\S+\.py)\]\(\S+\) \| `(\w+)` \|", re.MULTILINE)


def listed() -> list[tuple[str, str]]:
    """The files of the book's table, with the function that each is entered by."""
    return ROW.findall((ROOT / "docs/README.md").read_text())


def called(wanted: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of the functions that a compilation calls, in the order in which it first does."""
    found: dict[tuple[str, str], None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
            key = path, frame.f_code.co_name
            if key in wanted:
                found.setdefault(key)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        monograph.compile(lambda x, w: F.softmax(F.relu(x @ w)), "f32[8, 4]", "f32[4, 3]")
    finally:
        sys.setprofile(before)
    return list(found)


def test_the_road_is_as_the_book_lists_it() -> None:
    road = listed()
    assert len(road) == 12
    assert called(road) == road


def test_no_room_of_the_road_is_entered_twice() -> None:
    rooms = [Path(path).parts[1] for path, _ in listed()]
    entered = [room for k, room in enumerate(rooms) if k == 0 or rooms[k - 1] != room]
    assert len(entered) == len(set(entered))

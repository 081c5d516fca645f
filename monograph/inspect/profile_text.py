"""A profile as a table of 80 columns, the kernel that takes the longest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from monograph.program.arena import readable

if TYPE_CHECKING:
    from monograph.inspect.profile import KernelTime, Profile

WIDTH = 80
MOST_KERNELS = 24
"""Kernels that the table names; the rest are one row."""
_OP = re.compile(r"= (\w+)")


def profile_text(profile: Profile) -> str:
    """The page."""
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    lines = [
        profile.model,
        f"  {duration(profile.undisturbed)} a call on {threads}, undisturbed; "
        f"{duration(profile.seconds)} the quickest of {profile.calls} recorded",
        f"  {duration(profile.plain)} the quickest call without recording, which takes "
        f"{profile.overhead:.2f} × as long",
        f"  {readable(profile.peak_memory)} of intermediates alive at most",
        *([f"  run by {profile.served_by}"] if profile.served_by else []),
        "",
        f"{'share':>6} {'µs':>10} {'busy':>6} {'times':>6}  kernel",
    ]
    shown = profile.kernels[:MOST_KERNELS]
    for each in shown:
        lines += _row(each)
    left = profile.kernels[len(shown) :]
    if left:
        seconds = sum(each.seconds for each in left)
        launches = sum(each.launches for each in left)
        lines.append(
            _figures(seconds, profile.undisturbed, "", launches, f"{len(left)} other kernels")
        )
    lines.append(_figures(profile.other, profile.undisturbed, "", 0, "outside of kernels"))
    if profile.lost:
        lines.append(f"{profile.lost:,} records had no room: their time is in none of the rows")
    return "\n".join(lines)


def _row(kernel: KernelTime) -> list[str]:
    """A kernel, and under it what it computes, if its name does not say all of it."""
    whole = kernel.seconds / kernel.share if kernel.share else 0.0
    line = _figures(kernel.seconds, whole, f"{kernel.busy:.0%}", kernel.launches, kernel.name)
    ops = operations(kernel.nodes)
    if ops.replace(", ", "_") in kernel.name:
        return [line]
    return [line, *([f"{'':>33}{_cut(ops, WIDTH - 33)}"] if ops else [])]


def _figures(seconds: float, whole: float, busy: str, launches: int, name: str) -> str:
    share = f"{seconds / whole:.1%}" if whole else "-"
    times = f"{launches:,}" if launches else ""
    return _cut(f"{share:>6} {seconds * 1e6:>10,.1f} {busy:>6} {times:>6}  {name}", WIDTH)


def operations(nodes: Sequence[str]) -> str:
    """The ops of some printed nodes in order: ``dot_general, add ×2, gelu``."""
    found: list[tuple[str, int]] = []
    for text in nodes:
        match = _OP.search(text)
        name = match[1] if match else text
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    return ", ".join(name if times == 1 else f"{name} ×{times}" for name, times in found)


def duration(seconds: float) -> str:
    """Three digits that count: ``5.14 µs``, ``39.2 ms``, ``1.20 s``."""
    unit, scale = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-4 else ("µs", 1e6)
    value = seconds * scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"

"""Timing contenders by turns (``tuning.alternating_timer``); what to say of a busy machine."""

from __future__ import annotations

import os

from monograph.config import processor_count
from monograph.tuning.alternating_timer import Timing, alternate

__all__ = ["Timing", "alternate", "busy_note"]


def busy_note() -> str | None:
    """What to say of a machine that has too much to do for its figures to be trusted."""
    if not hasattr(os, "getloadavg"):
        return None
    load, processors = os.getloadavg()[0], processor_count()
    if load <= processors + 0.5:
        return None
    busy = f"this machine is busy (load {load:.1f} on {processors} processors)"
    return f"{busy}: measure again when it is not"

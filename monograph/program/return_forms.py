"""How a quick call gives its results back: the first one itself, or all as a tuple or a list."""

from __future__ import annotations

ONE, TUPLE, LIST = range(3)

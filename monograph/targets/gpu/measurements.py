"""What was measured on a GPU: for each place where there is a choice, the times and the winner.

    {"machine": "NVIDIA H200, …", "sites": {"product …": {"cuBLAS": 7.1, "cuBLASLt": 6.0}}}

A *site* is a choice, named by all that it hangs on: ops, shapes and dtypes, or the digest of a
kernel. Its contenders are named as people know them, and have microseconds. The table is plain
JSON, so that what one machine measured can be read where there is no GPU: nothing in it is run,
and everything is checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping

from monograph.errors import ArtifactError

MAX_SITES = 100_000
MAX_NAME = 4096
"""Characters of a name in a table."""

Times = Mapping[str, float]
"""Microseconds by contender."""


class Measurements:
    """The times of contenders by site, as one kind of machine measured them."""

    def __init__(self, machine: str = "", sites: Mapping[str, Times] | None = None) -> None:
        self.machine = machine
        """The GPU, its driver and the libraries, in words; empty if nothing is measured."""
        self.sites: dict[str, dict[str, float]] = {
            site: dict(times) for site, times in (sites or {}).items()
        }

    def times(self, site: str) -> Times:
        """The times of a site's contenders, the fastest first; none if it was not measured."""
        found = self.sites.get(site, {})
        return dict(sorted(found.items(), key=lambda each: each[1]))

    def winner(self, site: str) -> str | None:
        """The fastest contender of a site; None if it was not measured."""
        found = self.sites.get(site)
        return min(found, key=lambda name: found[name]) if found else None

    def add(self, site: str, times: Times) -> None:
        """Note what was measured."""
        self.sites[site] = dict(times)

    @property
    def digest(self) -> str:
        """Names all that is in the table."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]

    def text(self) -> str:
        """The table as JSON."""
        content = {"machine": self.machine, "sites": self.sites}
        return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_measurements(text: str) -> Measurements:
    """The table that ``Measurements.text`` gave; an error says what is wrong with another text."""
    try:
        content = json.loads(text)
    except ValueError:
        raise _unreadable("it is not JSON") from None
    if not isinstance(content, dict) or set(content) != {"machine", "sites"}:
        raise _unreadable("it is no object of a machine and its sites")
    machine, sites = content["machine"], content["sites"]
    if not isinstance(machine, str) or not isinstance(sites, dict) or len(sites) > MAX_SITES:
        raise _unreadable("its machine is no text, or its sites are no object")
    for site, times in sites.items():
        if len(site) > MAX_NAME or not isinstance(times, dict) or not times:
            raise _unreadable(f"the site {site[:80]!r} has no times")
        for name, value in times.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if len(name) > MAX_NAME or not is_number or not 0 < value < math.inf:
                raise _unreadable(f"{name[:80]!r} has no time above 0 at the site {site[:80]!r}")
    return Measurements(machine, sites)


def _unreadable(what: str) -> ArtifactError:
    return ArtifactError(
        "this table of measurements cannot be read",
        expected="what a compilation with a GPU has written",
        found=what,
    )

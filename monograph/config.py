"""Every option that comes from the environment, typed and documented in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from monograph.errors import InputError


@dataclass(frozen=True)
class Config:
    """Settings that hold for the whole process.

    ========================  ==================================================================
    ``MONOGRAPH_VERIFY=1``    check the graph after every pass
    ``MONOGRAPH_DUMP=dir``    write the graph after every pass to numbered files in ``dir``
    ========================  ==================================================================
    """

    verify: bool = False
    dump: str | None = None

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Config:
        """Read the ``MONOGRAPH_*`` variables; an unknown one is an error: it would do nothing."""
        known = {"MONOGRAPH_VERIFY", "MONOGRAPH_DUMP"}
        unknown = [
            name for name in environment if name.startswith("MONOGRAPH_") and name not in known
        ]
        if unknown:
            raise InputError(f"{unknown[0]} is not a setting", expected=", ".join(sorted(known)))
        return Config(
            verify=_flag("MONOGRAPH_VERIFY", environment),
            dump=environment.get("MONOGRAPH_DUMP") or None,
        )


def _flag(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name, "0").strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise InputError(f"{name} is not a yes or no", expected="1 or 0", found=repr(text))

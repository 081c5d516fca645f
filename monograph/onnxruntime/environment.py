"""What ONNX Runtime tells of itself and of the machine, and its switches for the whole process."""

from __future__ import annotations

import warnings

import monograph
from monograph.onnxruntime.options import OptionWarning
from monograph.onnxruntime.providers import KNOWN_PROVIDERS, PROVIDER


def get_available_providers() -> list[str]:
    """Those that sessions can use."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Those that programs may name."""
    return list(KNOWN_PROVIDERS)


def get_device() -> str:
    """The device that sessions use."""
    return "CPU"


def get_version_string() -> str:
    """The version of this compiler."""
    return monograph.__version__


def get_build_info() -> str:
    """What this is."""
    return f"ORT Build Info: monograph {monograph.__version__}, with LLVM, for the processor"


def set_seed(seed: int) -> None:
    """Accepted: a random node without a seed of its own draws the same numbers in every session."""
    warnings.warn(
        f"set_seed({seed}): random nodes take their own seed, or one made from their name",
        OptionWarning,
        stacklevel=2,
    )


def set_default_logger_severity(severity: int) -> None:
    """Accepted; what this compiler logs goes to the logger ``monograph``."""
    if not 0 <= severity <= 4:
        raise RuntimeError(f"Invalid logging level: {severity}; Valid ones are 0 to 4")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted; what this compiler logs goes to the logger ``monograph``."""


def enable_telemetry_events() -> None:
    """Accepted: nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Accepted: nothing is ever sent."""

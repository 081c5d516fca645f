"""Execution providers: programs may name any that ONNX Runtime has, and the processor runs them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

PROVIDER = "CPUExecutionProvider"

KNOWN_PROVIDERS = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
    PROVIDER,
)
"""Those that ONNX Runtime has builds for."""


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """The names and the options of providers; an error for what says neither.

    Of two with one name the first counts. One that is not available, or comes again, is a warning.
    """
    if providers is None:
        return [], []
    found: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if name not in available_provider_names:
            _warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{', '.join(available_provider_names)}'"
            )
        if name in found:
            _warn(f"Duplicate provider '{name}' encountered, ignoring.")
            continue
        found[name] = {str(key): str(value) for key, value in options.items()}
    return list(found), list(found.values())


def _pairs(providers: Any, options: Any) -> list[tuple[str, dict[Any, Any]]]:
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if options is None:
        return [_pair(each) for each in providers]
    if not isinstance(options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(options) != len(providers):
        raise ValueError(
            "'providers' and 'provider_options' should be the same length if both are given."
        )
    if not all(isinstance(each, str) for each in providers):
        raise ValueError(
            "Only string values for 'providers' are supported if 'provider_options' is given."
        )
    if not all(isinstance(each, dict) for each in options):
        raise ValueError("'provider_options' values must be dicts.")
    return list(zip(providers, options, strict=True))


def _pair(provider: Any) -> tuple[str, dict[Any, Any]]:
    match provider:
        case str():
            return provider, {}
        case (str(name), dict(options)) if isinstance(provider, tuple):
            return name, options
    raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)

"""FX modules compiled to TorchScript."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from monograph.errors import UnsupportedError


def script(module: torch.fx.GraphModule, name: str) -> Any:
    """``torch.jit.script`` of the module's code; an error of ours if TorchScript cannot say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is deprecated
        try:
            return torch.jit.script(module)
        except RuntimeError as error:
            raise UnsupportedError(
                f"TorchScript cannot compile @{name}: {str(error).strip().splitlines()[0]}",
                hint="to_fx gives a module that runs in Python",
            ) from error

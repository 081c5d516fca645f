"""Batches from a file of samples: a ``.npz`` with an array for each input, or a ``.npy``."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph, Value
from monograph.ir.types import Array

USUAL_BATCH = 8
"""Samples in a batch where neither the model nor the caller says."""
MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""How a ``.npy`` file begins, and a ``.npz`` file of arrays or of none."""


def read_batches(path: str | Path, graph: Graph, batch: int | None = None) -> list[list[Array]]:
    """The samples of a ``.npz`` file in batches, an array for each input in order.

    Arrays are found by the names of the inputs; the first dimension counts samples. A rest that
    does not fill a batch of fixed size is left out.
    """
    arrays = _read(Path(path))
    inputs = graph.inputs
    found = [_array_of(arrays, value, len(inputs)) for value in inputs]
    counts = {array.shape[0] if array.ndim else 0 for array in found}
    if len(counts) != 1:
        raise InputError(
            "the inputs have different numbers of samples", found=", ".join(map(str, counts))
        )
    (count,) = counts
    sizes = {value.shape[0] for value in inputs if value.rank and isinstance(value.shape[0], int)}
    fixed = next(iter(sizes)) if len(sizes) == 1 else None
    size = fixed if isinstance(fixed, int) else batch or USUAL_BATCH
    starts = range(0, count - size + 1, size) if fixed is not None else range(0, count, size)
    batches = [[array[start : start + size] for array in found] for start in starts]
    if not batches:
        raise InputError(
            "there are too few samples for a batch",
            expected=f"{size} or more along the first dimension",
            found=str(count),
        )
    return batches


def _read(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise InputError(
            f"there is no file {str(path)!r}", expected="a .npz or .npy file of samples"
        )
    with path.open("rb") as opened:
        begins = opened.read(max(map(len, MAGIC)))
    if not begins.startswith(MAGIC):
        raise InputError(
            f"{path} is not a file of arrays",
            expected="a .npz or .npy file, as numpy.savez and numpy.save write them",
            found=f"a file that begins with {begins!r}",
        )
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):  # a .npy
            return {"": file}
        with file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as problem:
        raise InputError(f"{path} is not a file of arrays", found=str(problem)) from None


def _array_of(arrays: dict[str, Array], value: Value, inputs: int) -> Array:
    found = arrays.get(value.name)
    if found is None and inputs == 1 and len(arrays) == 1:
        found = next(iter(arrays.values()))
    if found is None:
        raise InputError(
            f"the samples lack the input {value.name!r}",
            expected=f"an array of {value.type} for each input, by its name",
            found=", ".join(arrays) or "no array",
        )
    if found.dtype.kind not in "biuf":
        raise InputError(
            f"the samples of {value.name!r} are no numbers",
            expected=str(value.type),
            found=str(found.dtype),
        )
    return found.astype(value.dtype.numpy, copy=False)

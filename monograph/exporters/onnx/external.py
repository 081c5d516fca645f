"""The weights: inside the model, or in a file beside it.

A protobuf file cannot reach 2 GiB. Weights in a file of their own are written one after the other,
straight from where they are, each at a multiple of 4096 bytes so that it can be memory-mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto

from monograph.errors import InputError
from monograph.exporters.onnx.protos import CODES, raw_elements, tensor_proto
from monograph.ir.data import Data
from monograph.ir.types import string

LARGEST_INSIDE = 3 * 2**29  # 1.5 GiB
LARGEST_FILE = 2**31 - 1
SMALLEST_OUTSIDE = 1024
ALIGNMENT = 4096

Weights = Sequence[tuple[str, Data]]


def wants_own_file(weights: Weights, path: Path | None, external_data: bool | None) -> bool:
    """Whether the weights go to a file of their own."""
    size = sum(_bytes(data) for _, data in weights)
    if external_data is False:
        _check_fits_inside(size)
        return False
    too_large = size > LARGEST_INSIDE
    if path is None and (external_data or too_large):
        raise InputError(
            "to_onnx: the weights need a file of their own",
            expected="a path to write the model to",
            found="no path" + (", and more than 1.5 GiB of weights" if too_large else ""),
        )
    return bool(external_data) or too_large


def _check_fits_inside(size: int) -> None:
    if size >= LARGEST_FILE:
        raise InputError(
            "to_onnx: the weights do not fit into the model's own file",
            expected=f"less than {LARGEST_FILE:,} bytes, which is all that protobuf can hold",
            found=f"{size:,} bytes",
            hint="leave out external_data=False",
        )


def add_weights(model: ModelProto, weights: Weights, path: Path | None) -> None:
    """Add the weights as initializers; with a path, their elements go to the file beside it."""
    if path is None:
        for name, data in weights:
            model.graph.initializer.append(tensor_proto(data.array(), data.dtype, name))
        return
    location = f"{path.name}.data"
    written: dict[int, tuple[int, int]] = {}  # one place for weights that share their data
    with path.with_name(location).open("wb") as file:
        for name, data in weights:
            if data.dtype is string or _bytes(data) < SMALLEST_OUTSIDE:
                model.graph.initializer.append(tensor_proto(data.array(), data.dtype, name))
                continue
            if id(data) not in written:
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                offset = file.tell()
                written[id(data)] = offset, file.write(raw_elements(data.array(), data.dtype).data)
            model.graph.initializer.append(_outside(name, data, location, *written[id(data)]))


def _outside(name: str, data: Data, location: str, offset: int, length: int) -> TensorProto:
    proto = TensorProto(name=name, data_type=CODES[data.dtype], dims=data.shape)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        proto.external_data.add(key=key, value=str(value))
    return proto


def _bytes(data: Data) -> int:
    return (data.size * data.dtype.bits + 7) // 8

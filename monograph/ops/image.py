"""Images from the bytes of a file; only the interpreter runs this, and it needs Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.dims import Dim, Symbol, provably_less
from monograph.ir.op import Op, Sample, op
from monograph.ir.types import Array, TensorType, u8
from monograph.ops.rules import require, result_symbols

PixelFormat: TypeAlias = Literal["RGB", "BGR", "Grayscale"]


@op("decode_image")
class DecodeImage(Op):
    """The image that an encoded file holds, ``u8[height, width, channels]``.

    Bytes that are no image give one without rows and columns. ``height`` and ``width`` name what
    only the file says.
    """

    height: Dim
    width: Dim
    pixel_format: PixelFormat = "RGB"

    def infer(self, encoded: TensorType) -> TensorType:
        require(
            encoded.dtype is u8 and encoded.rank == 1,
            "decode_image: bytes are needed",
            expected="u8[n]",
            found=encoded,
        )
        require(
            self.pixel_format in get_args(PixelFormat),
            "decode_image: no such pixel format",
            expected=", ".join(get_args(PixelFormat)),
            found=self.pixel_format,
        )
        require(
            not provably_less(self.height, 0) and not provably_less(self.width, 0),
            "decode_image: a negative size",
            expected="0 or more",
            found=f"{self.height} x {self.width}",
        )
        channels = 1 if self.pixel_format == "Grayscale" else 3
        return encoded.with_shape((self.height, self.width, channels))

    def evaluate(self, encoded: Array) -> Array:
        library = _pillow()
        gray = self.pixel_format == "Grayscale"
        try:
            image = library.open(io.BytesIO(encoded.tobytes())).convert("L" if gray else "RGB")
        except (OSError, SyntaxError, ValueError):  # what Pillow raises for a damaged file
            return np.zeros((0, 0, 1 if gray else 3), np.uint8)
        pixels = np.asarray(image)
        if gray:
            return pixels[:, :, None]
        return pixels[:, :, ::-1] if self.pixel_format == "BGR" else pixels

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.height, self.width)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        pixels = b"P6 2 1 255\n" + bytes([255, 0, 10, 20, 30, 40])
        encoded = np.frombuffer(pixels, np.uint8)
        for pixel_format in get_args(PixelFormat):
            yield Sample(cls(1, 2, pixel_format), (encoded,), pixel_format)
        yield Sample(cls(0, 0), (encoded[3:],), "damaged")


def _pillow() -> Any:
    """Pillow's ``Image``, which is not installed with Monograph."""
    try:
        from PIL import Image
    except ImportError:
        raise EvaluationError(
            "decode_image: Pillow is not installed", hint="pip install pillow"
        ) from None
    return Image

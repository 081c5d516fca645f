"""Weights that other quantizers packed: GGUF's blocks, GPTQ's and AWQ's words."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.frontends.gguf import BLOCKS, read_gguf
from monograph.frontends.packed_weights import PackedWeight, read_awq, read_gptq
from monograph.ir.types import Array

KINDS = {name: (kind, numbers, size) for kind, (name, numbers, size) in BLOCKS.items()}


def text(given: str) -> bytes:
    return struct.pack("<Q", len(given)) + given.encode()


def gguf_bytes(form: str, rows: int, columns: int) -> tuple[bytes, bytes]:
    """A file with one tensor of random blocks, and those blocks."""
    kind, numbers, size = KINDS[form]
    blocks = np.random.default_rng(0).integers(0, 256, (rows * columns // numbers, size), np.uint8)
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    blocks[:, :2] = scale
    if form == "Q4_K":
        blocks[:, 2:4] = scale
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    head += text("general.name") + struct.pack("<I", 8) + text("test")
    head += text("list") + struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 1, 2)
    head += text("w") + struct.pack("<IQQIQ", 2, columns, rows, kind, 0)
    return head + bytes(-len(head) % 32) + blocks.tobytes(), blocks.tobytes()


def dequantized(form: str, blocks: bytes, shape: tuple[int, int]) -> Array:
    """What the blocks mean, number by number, as their definition reads."""
    _, numbers, size = KINDS[form]
    found = []
    for start in range(0, len(blocks), size):
        block = blocks[start : start + size]
        d = float(np.frombuffer(block[:2], np.float16)[0])
        if form == "Q8_0":
            found += [d * each for each in np.frombuffer(block[2:], np.int8).tolist()]
        elif form == "Q4_0":
            found += [d * ((each & 15) - 8) for each in block[2:]]
            found += [d * ((each >> 4) - 8) for each in block[2:]]
        else:
            low, s = float(np.frombuffer(block[2:4], np.float16)[0]), block[4:16]
            for group in range(8):
                if group < 4:
                    scale, least = s[group] & 63, s[group + 4] & 63
                else:
                    scale = (s[group + 4] & 15) | ((s[group - 4] >> 6) << 4)
                    least = (s[group + 4] >> 4) | ((s[group] >> 6) << 4)
                packed = block[16 + 32 * (group // 2) : 48 + 32 * (group // 2)]
                codes = [each >> 4 if group % 2 else each & 15 for each in packed]
                found += [d * scale * code - low * least for code in codes]
    assert len(found) == shape[0] * shape[1] and numbers
    return np.array(found, np.float32).reshape(shape)


@pytest.mark.parametrize("form", KINDS)
def test_blocks_mean_what_their_definition_says(form: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    data, blocks = gguf_bytes(form, 6, 512)
    path.write_bytes(data)
    file = read_gguf(path)
    assert file.metadata == {"general.name": "test", "list": [1, 2]}
    weight = file.tensors["w"]
    assert isinstance(weight, PackedWeight)
    expected = dequantized(form, blocks, (6, 512))
    np.testing.assert_allclose(weight.array(), expected, rtol=1e-5, atol=1e-5)
    x = np.random.default_rng(1).normal(size=(3, 512)).astype(np.float32)
    compiled = monograph.compile(lambda x: F.linear(x, weight.value(x.graph, "w")), x, strict=True)
    np.testing.assert_allclose(compiled(x), x @ expected.T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("cut", [0, 3, 4, 10, 24, 40, 70, 100, 130, 200, -1])
def test_a_file_that_ends_early_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes("Q4_0", 4, 64)[0][:cut])
    with pytest.raises(InputError):
        read_gguf(path)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    data = bytearray(gguf_bytes("Q4_K", 2, 256)[0])
    for place in generator.integers(0, 160, 4):
        data[place] = generator.choice([0, 1, 127, 255])
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(data))
    try:
        read_gguf(path)
    except InputError as error:
        assert str(path) in str(error)


def tensors_at(*entries: tuple[str, tuple[int, ...], int, int]) -> bytes:
    """A file with these tensors, each a name, a shape, a type and an offset, and some bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(entries), 0)
    for name, shape, kind, offset in entries:
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, offset)
    return head + bytes(-len(head) % 32 + 18 * 64)


@pytest.mark.parametrize(
    "entries, message",
    [
        ([("w", (0, 1 << 63), 0, 0)], "too large"),
        ([("w", (1 << 32, 1 << 32), 0, 0)], "too large"),
        ([("w", (1 << 20, 1 << 20), 0, 0)], "ends too early"),
        ([("w", (4,), 0, 1 << 63)], "ends too early"),
        ([("w", (5, 0), 2, 0)], "rows of whole blocks"),
        ([("w", (2, 32), 2, 0), ("w", (2, 32), 2, 64)], "two tensors of one name"),
        ([(f"w{k}", (8, 128), 2, 0) for k in range(1000)], "overlap"),
    ],
)
def test_tensors_that_cannot_be_are_refused(
    entries: list[tuple[str, tuple[int, ...], int, int]], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tensors_at(*entries))
    with pytest.raises(InputError, match=message):
        read_gguf(path)


def pack_words(numbers: Array, order: tuple[int, ...]) -> Array:
    """Eight numbers along the last axis in a word; ``order[k]`` is the number in nibble k."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8).astype(np.uint32)
    words = np.zeros(eights.shape[:-1], np.uint32)
    for nibble, which in enumerate(order):
        words |= eights[..., which] << np.uint32(4 * nibble)
    return words.view(np.int32)


def layer(kind: str, zero: int = 14) -> tuple[dict[str, Any], Array]:
    generator = np.random.default_rng(0)
    inputs, outputs, group = 64, 16, 32
    numbers = generator.integers(0, 16, (inputs, outputs))
    points = generator.integers(1, zero + 1, (inputs // group, outputs))
    scales = generator.random((inputs // group, outputs)).astype(np.float16)
    spread = np.repeat(np.arange(inputs // group), group)
    real = (numbers - points[spread]) * scales[spread].astype(np.float32)
    if kind == "gptq":
        order = tuple(range(8))
        words, zeros = pack_words(numbers.T, order).T, pack_words(points - 1, order)
    else:
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        words, zeros = pack_words(numbers, order), pack_words(points, order)
    tensors = {"q.qweight": words, "q.qzeros": zeros, "q.scales": scales}
    return {**tensors, "q.g_idx": spread.astype(np.int32)}, real.T.astype(np.float32)


@pytest.mark.parametrize("kind, read", [("gptq", read_gptq), ("awq", read_awq)])
@pytest.mark.parametrize("zero", [14, 16])
def test_layers_of_words_are_unpacked(kind: str, read: Any, zero: int) -> None:
    tensors, expected = layer(kind, min(zero, 15) if kind == "awq" else zero)
    packed = read(tensors, "q")
    np.testing.assert_allclose(packed.array(), expected, rtol=1e-6)
    graph = monograph.trace(lambda x: F.linear(x, packed.value(x.graph, "w")), "f32[2, 64]")
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    np.testing.assert_allclose(
        monograph.interpret(graph, [x])[0], x @ expected.T, rtol=1e-4, atol=1e-4
    )


def test_layers_that_are_none_are_refused() -> None:
    tensors, _ = layer("gptq")
    with pytest.raises(InputError, match="no tensor"):
        read_gptq(tensors, "k")
    with pytest.raises(InputError, match="reordered"):
        read_gptq({**tensors, "q.g_idx": tensors["q.g_idx"][::-1]}, "q")
    with pytest.raises(InputError, match="not a layer"):
        read_awq({**tensors, "q.qweight": tensors["q.qweight"].astype(np.int64)}, "q")
    scales = tensors["q.scales"]
    for wrong in (scales[:, :5], scales.astype(np.int32), np.full(scales.shape, "a"), scales[0]):
        with pytest.raises(InputError, match="not a layer"):
            read_gptq({**tensors, "q.scales": wrong}, "q")
    for number in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            read_awq({**tensors, "q.scales": np.full_like(scales, number)}, "q")
    with pytest.raises(InputError, match="not a layer"):
        read_awq({**tensors, "q.qweight": tensors["q.qweight"][:0]}, "q")

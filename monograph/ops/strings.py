"""Ops on strings, for models that clean text before they count it; interpreted only.

``count_ngrams`` counts numbers as well, and those natively.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.dims import Dim, Symbol, dim_max, provably_less, shape_product
from monograph.ir.lower import LoopBuilder, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.types import Array, TensorType, bool_, f32, i64, string
from monograph.ops.rules import broadcast_shapes, require, result_symbols

MOST_ITEMS = 1024
"""Numbers, in all n-grams together, that are written out as code."""
WORDS = np.array([["apple", "Ábc", ""], ["a,b,,c", "x y", "Monday"]], object)


def _require_strings(name: str, *types: TensorType) -> None:
    for type_ in types:
        require(
            type_.dtype is string, f"{name}: strings are needed", expected="string", found=type_
        )


@op("string_concat")
class StringConcat(Op):
    """Two strings, one after the other; operands broadcast."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        _require_strings(self.name, a, b)
        return a.with_shape(broadcast_shapes(self.name, a.shape, b.shape))

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.asarray(np.add(a, b), object)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(), (WORDS, WORDS), "", False)
        yield Sample(cls(), (WORDS, np.array("!", object)), "broadcast a scalar", False)
        yield Sample(cls(), (WORDS[:0], WORDS[:0]), "empty", False)


@op("string_split")
class StringSplit(Op):
    """The parts of each string along a new last axis, filled up with empty ones, and their number.

    An empty ``delimiter`` splits at runs of white space. At most ``limit`` splits are made, if
    there is one. ``parts`` names the largest number of parts, which only the run knows.
    """

    parts: Dim
    delimiter: str = ""
    limit: int | None = None

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        _require_strings(self.name, x)
        return x.with_shape((*x.shape, self.parts)), x.with_dtype(i64)

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        limit = -1 if self.limit is None else self.limit
        lists = [item.split(self.delimiter or None, limit) for item in x.reshape(-1)]
        most = max(map(len, lists), default=0)
        parts = np.full((len(lists), most), "", object)
        for row, items in enumerate(lists):
            parts[row, : len(items)] = items
        counts = np.array([len(items) for items in lists], np.int64)
        return parts.reshape(*x.shape, most), counts.reshape(x.shape)

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.parts)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(4, ","), (WORDS,), "", False)
        yield Sample(cls(2), (WORDS,), "white space", False)
        yield Sample(cls(2, ",", 1), (WORDS,), "a limit", False)
        yield Sample(cls(0), (WORDS[:0],), "empty", False)


@op("regex_full_match")
class RegexFullMatch(Op):
    """Whether a regular expression matches the whole of each string."""

    pattern: str

    def infer(self, x: TensorType) -> TensorType:
        _require_strings(self.name, x)
        try:
            re.compile(self.pattern)
        except re.error as error:
            require(
                False,
                "regex_full_match: not a regular expression",
                expected="a pattern that compiles",
                found=f"{self.pattern!r}: {error}",
            )
        return x.with_dtype(bool_)

    def evaluate(self, x: Array) -> Array:
        pattern = re.compile(self.pattern)
        found = [pattern.fullmatch(item) is not None for item in x.reshape(-1)]
        return np.array(found, np.bool_).reshape(x.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(r"[a-z]+"), (WORDS,), "", False)
        yield Sample(cls(r".*"), (WORDS[:0],), "empty", False)


@op("string_normalize")
class StringNormalize(Op):
    """A list of words without accents and stop words, in one case; at least one empty word remains.

    The operand is a vector, or a matrix of one row. ``count`` names how many words are left.
    """

    count: Dim
    case: Literal["none", "lower", "upper"] = "none"
    stopwords: tuple[str, ...] = ()
    case_sensitive: bool = False

    def infer(self, x: TensorType) -> TensorType:
        _require_strings(self.name, x)
        require(
            x.rank == 1 or (x.rank == 2 and not provably_less(1, x.shape[0])),
            "string_normalize: one list of words is needed",
            expected="rank 1, or rank 2 with one row",
            found=x,
        )
        return x.with_shape((*x.shape[:-1], self.count))

    def evaluate(self, x: Array) -> Array:
        if x.ndim == 2 and x.shape[0] != 1:
            raise EvaluationError("string_normalize: one row is needed", found=str(x.shape))
        words = [word for word in map(self._normal, x.reshape(-1)) if word] or [""]
        return np.array(words, object).reshape((*x.shape[:-1], len(words)))

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.count)

    def _normal(self, text: str) -> str:
        plain = text if text.isascii() else _without_accents(text)
        if self.case_sensitive:
            return self._change_case(_without(plain, self.stopwords))
        return _without(
            self._change_case(plain), [self._change_case(word) for word in self.stopwords]
        )

    def _change_case(self, text: str) -> str:
        return {"none": text, "lower": text.lower(), "upper": text.upper()}[self.case]

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        days = np.array(["Monday", "tuesday", "Mércredi"], object)
        yield Sample(cls(2, "upper", ("monday",)), (days,), "", False)
        yield Sample(cls(3, "lower", ("monday",), True), (days[None],), "case sensitive", False)
        yield Sample(cls(1, "none", ("tuesday",)), (days[1:2],), "nothing left", False)


def _without_accents(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text)
    return "".join(each for each in apart if not unicodedata.combining(each))


def _without(text: str, stopwords: Sequence[str]) -> str:
    if not stopwords:
        return text
    return " ".join(word for word in text.split(" ") if word not in stopwords)


@op("count_ngrams")
class CountNgrams(Op):
    """How often each n-gram of a list occurs in the operand's last axis; one column for each.

    ``ngrams`` are words or numbers, ``columns`` says which column each counts in. Between two items
    of an n-gram may lie 0 to ``skips`` others, equally many each time; single items count once.
    """

    ngrams: tuple[tuple[str | int, ...], ...]
    columns: tuple[int, ...]
    size: int
    skips: int = 0

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.rank in (1, 2) and (x.dtype is string or x.dtype.is_integer),
            "count_ngrams: lists of words or integers are needed",
            expected="rank 1 or 2",
            found=x,
        )
        require(
            len(self.ngrams) == len(self.columns)
            and all(0 <= column < self.size for column in self.columns),
            "count_ngrams: wrong columns",
            expected=f"{len(self.ngrams)} columns from 0 to {self.size - 1}",
            found=self.columns,
        )
        return x.with_shape((*x.shape[:-1], self.size)).with_dtype(f32)

    def evaluate(self, x: Array) -> Array:
        counts = np.zeros((*x.shape[:-1], self.size), np.float32)
        if not x.size:
            return counts
        columns: dict[tuple[Any, ...], list[int]] = {}
        for ngram, column in zip(self.ngrams, self.columns, strict=True):
            columns.setdefault(ngram, []).append(column)
        lengths = {len(ngram) for ngram in self.ngrams}
        flat = counts.reshape(-1, self.size)
        for row, items in enumerate(x.reshape(-1, x.shape[-1]).tolist()):
            for window in self._windows(items, lengths):
                for column in columns.get(window, ()):
                    flat[row, column] += 1
        return counts

    def _windows(self, items: list[Any], lengths: set[int]) -> Iterator[tuple[Any, ...]]:
        """Every run of items that may be an n-gram."""
        for length in lengths:
            for distance in range(1, self._distances(length)):
                reach = distance * (length - 1) + 1
                for start in range(len(items) - reach + 1):
                    yield tuple(items[start : start + reach : distance])

    def has_loops(self) -> bool:
        """Only a list of numbers that is short enough to be written out."""
        items = [item for ngram in self.ngrams for item in ngram]
        return len(items) <= MOST_ITEMS and all(isinstance(item, int) for item in items)

    def lower_loops(self, b: LoopBuilder) -> None:
        (x,) = b.operands
        rows, length = shape_product(x.shape[:-1]), x.shape[-1]
        counts = b.viewed(b.result(), (rows, self.size))
        nothing, one = b.literal(0, f32), b.literal(1, f32)
        with b.parallel((rows,)) as (row,):

            def item(place: Scalar) -> Scalar:
                position = b.clamp(place, 0, length)
                return b.cast(b.reshaped(0, (rows, length), [row, position]), i64)

            totals = [b.variable(nothing) for _ in range(self.size)]
            for ngram, column in zip(self.ngrams, self.columns, strict=True):
                total = totals[column]
                for distance in range(1, self._distances(len(ngram))):
                    reach = distance * (len(ngram) - 1) + 1
                    with b.loop(dim_max(length - reach + 1, 0)) as start:
                        found = b.literal(True, bool_)
                        for k, wanted in enumerate(ngram):
                            number = b.literal(int(wanted), i64)
                            is_there = b.apply("equal", item(start + k * distance), number)
                            found = b.both(found, is_there)
                        total.set(b.apply("add", total.get(), b.select(found, one, nothing)))
            for column, total in enumerate(totals):
                b.store(counts, [row, b.index(column)], total.get())

    def _distances(self, length: int) -> int:
        """Items of an n-gram lie less than this apart."""
        return self.skips + 2 if length > 1 else 2

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        numbers = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)
        yield Sample(cls(((2,), (3,), (5, 6), (7, 8)), (0, 1, 2, 3), 4), (numbers,), "", False)
        yield Sample(cls(((6, 8), (3, 3)), (2, 0), 3, 5), (numbers[0],), "skips", False)
        words = np.array(["a", "b", "a"], object)
        yield Sample(cls((("a",), ("a", "b")), (1, 0), 2), (words,), "words", False)

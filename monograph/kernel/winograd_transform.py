"""The transforms of Winograd's method for three taps: small matrices, written as formulas.

``m`` neighbouring results of three taps need ``m+2`` elements. Both they and the taps are seen as
polynomials, and multiplied by their values at ``m+2`` points, one of them infinity:

    y = Aᵀ [ (G g) · (Bᵀ d) ]           m+2 multiplications instead of 3m

In two dimensions each matrix is applied along the columns, then along the rows. The formulas share
what they have in common, and multiply and add in one rounding.

**At stride two** results read even elements with the outer taps and odd ones with the middle tap.
Two of them are thus two results of two taps (three multiplications instead of four, at the points
0, 1 and ∞) and two of one tap: 5 instead of 6, and 25 instead of 36 in two dimensions. The middle
tap meets two elements of a line, so its plane of the weights serves two planes of the input.

**Error.** The largest error over the largest result, against float64, with 16 to 2048 channels of
normal, one-sided and heavy-tailed data: F(2×2) stays below 1.5e-6 (1.1e-6 was seen), no more than
summing directly in long runs gives (4e-7 to 6e-6 by oneDNN), at stride two as well; F(2×4) below
3e-6 (2.1e-6 was seen, and at most 1.6 times that of summing directly); F(4×4) below 6e-6 (3.6e-6).
The points of four results are 0, ±1/√2, ±√2 and ∞, which keep the numbers in the three matrices
closer together than the usual ±1 and ±2: a quarter of the error. An infinity makes NaN of its whole
tile.

**Whole numbers.** Bytes are transformed exactly, in 16 bits: a tile's numbers stay below 2·2·255
(F(2×2)) or 2·10·255 (F(2×4)), those of the weights below 3·3·255 or 3·7·255. There are no halves
and sixths of weights: results come out 4 or 48 times as large, in 32 bits that may wrap. Dividing
by the odd part is multiplying by its inverse, which no wrapping disturbs; dividing by the rest is a
shift, which is right while that many times the results fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Expr

Line: TypeAlias = Sequence[Expr]
TAPS = 3


@dataclass(frozen=True)
class Part:
    """Planes of the weights that each serve as many planes of the input, one after the other."""

    first: int
    """The first of the input's planes."""
    weight: int
    """The first of the weights' planes."""
    count: int
    """How many planes of the weights there are."""
    copies: int
    """How many planes of the input each of them serves."""


@dataclass(frozen=True)
class Lines:
    """F(m, 3): how a line of elements, weights or products is transformed."""

    results: int
    """m: how many results a line has."""
    of_input: Callable[[Line], Line]
    of_weights: Callable[[Line], Line]
    of_products: Callable[[Line], Line]
    serving: tuple[int, ...]
    """Which number of a transformed line of weights each number of one of the input meets."""
    stride: int = 1

    @property
    def span(self) -> int:
        """How many elements of the input a line has."""
        return len(self.serving)

    @property
    def step(self) -> int:
        """How far apart in the input neighbouring lines begin."""
        return self.results * self.stride


@dataclass(frozen=True)
class Transform:
    """F(m×n, 3×3): how the columns of a tile are transformed, and then its rows."""

    down: Lines
    along: Lines
    depth: int
    """Channels that one running sum takes before it is added to another."""
    scale: int = 1
    """What the results are multiplied by: whole numbers have no fractions of weights."""

    @property
    def stride(self) -> int:
        """How far apart in the input neighbouring windows are."""
        return self.along.stride

    @property
    def planes(self) -> int:
        """How many numbers a tile is turned into."""
        return self.down.span * self.along.span

    @property
    def weight_planes(self) -> int:
        """How many numbers a window of the weights is turned into."""
        return len(self.weight_numbers)

    @property
    def fewer(self) -> float:
        """How many times fewer multiplications there are than taps."""
        return TAPS**2 * self.down.results * self.along.results / self.planes

    @property
    def name(self) -> str:
        """``F(2×2)``: the rows and columns of a tile's results."""
        strided = "" if self.stride == 1 else f" at stride {self.stride}"
        return f"F({self.down.results}×{self.along.results}){strided}"

    @cached_property
    def weight_numbers(self) -> dict[tuple[int, int], int]:
        """The plane of each number of transformed weights: those that serve most come last."""
        rows, columns = (sorted(set(lines.serving)) for lines in (self.down, self.along))
        pairs = [(i, j) for i in rows for j in columns]
        return {pair: number for number, pair in enumerate(sorted(pairs, key=self._copies))}

    @cached_property
    def numbers(self) -> dict[tuple[int, int], int]:
        """The plane of each number of a transformed tile: the order in which weights are met."""

        def order(place: tuple[int, int]) -> tuple[int, int, int]:
            i, j = place
            met = self.down.serving[i], self.along.serving[j]
            return self.weight_numbers[met], i, j

        places = [(i, j) for i in range(self.down.span) for j in range(self.along.span)]
        return {place: number for number, place in enumerate(sorted(places, key=order))}

    def parts(self) -> tuple[Part, ...]:
        """The planes in order, cut where those of the weights begin to serve more."""
        copies = [self._copies(pair) for pair in self.weight_numbers]
        found: list[Part] = []
        first = 0
        for each in sorted(set(copies)):
            count = copies.count(each)
            found.append(Part(first, copies.index(each), count, each))
            first += count * each
        return tuple(found)

    def _copies(self, pair: tuple[int, int]) -> int:
        return self.down.serving.count(pair[0]) * self.along.serving.count(pair[1])


def _number(value: float, like: Expr | None = None) -> Expr:
    return e.literal(value, f32 if like is None else like.dtype)


def _add(a: Expr, b: Expr) -> Expr:
    return e.apply("add", a, b)


def _subtract(a: Expr, b: Expr) -> Expr:
    return e.apply("subtract", a, b)


def _scale(factor: float, a: Expr) -> Expr:
    return e.apply("multiply", _number(factor, a), a)


def _multiply_add(factor: float, a: Expr, b: Expr) -> Expr:
    """``factor * a + b``, rounded once."""
    return e.apply("fma", _number(factor), a, b)


def _input_of_two(d: Line) -> Line:
    return _subtract(d[0], d[2]), _add(d[1], d[2]), _subtract(d[2], d[1]), _subtract(d[1], d[3])


def _weights_of_two(g: Line) -> Line:
    ends = _add(g[0], g[2])
    return g[0], _scale(0.5, _add(ends, g[1])), _scale(0.5, _subtract(ends, g[1])), g[2]


def _products_of_two(m: Line) -> Line:
    return _add(m[0], _add(m[1], m[2])), _subtract(_subtract(m[1], m[2]), m[3])


def _input_at_two(d: Line) -> Line:
    return _subtract(d[0], d[2]), d[2], _subtract(d[4], d[2]), d[1], d[3]


def _weights_at_two(g: Line) -> Line:
    return g[0], _add(g[0], g[2]), g[2], g[1]


def _products_at_two(m: Line) -> Line:
    return _add(_add(m[0], m[1]), m[3]), _add(_add(m[1], m[2]), m[4])


INNER, OUTER = 2**-0.5, 2**0.5
"""The points of F(4×4) beside 0 and ∞, with either sign."""


def _input_of_four(d: Line) -> Line:
    """Each pair of points ±p is an even part plus and minus an odd part."""
    lines = [_add(d[0], _multiply_add(-2.5, d[2], d[4]))]
    for point, other in ((INNER, 2.0), (OUTER, 0.5)):
        even, odd = _multiply_add(-other, d[2], d[4]), _multiply_add(-other, d[1], d[3])
        lines += [_multiply_add(point, odd, even), _multiply_add(-point, odd, even)]
    return *lines, _add(d[1], _multiply_add(-2.5, d[3], d[5]))


def _weights_of_four(g: Line) -> Line:
    lines = [g[0]]
    for point, square, factor in ((INNER, 0.5, -2 / 3), (OUTER, 2.0, 1 / 6)):
        even = _scale(factor, _multiply_add(square, g[2], g[0]))
        lines += [_multiply_add(factor * point, g[1], even)]
        lines += [_multiply_add(-factor * point, g[1], even)]
    return *lines, g[2]


def _products_of_four(m: Line) -> Line:
    inner, outer = _add(m[1], m[2]), _add(m[3], m[4])
    inner_odd, outer_odd = _subtract(m[1], m[2]), _subtract(m[3], m[4])
    cubes = _multiply_add(INNER**3, inner_odd, _scale(OUTER**3, outer_odd))
    return (
        _add(m[0], _add(inner, outer)),
        _multiply_add(INNER, inner_odd, _scale(OUTER, outer_odd)),
        _multiply_add(0.5, inner, _scale(2.0, outer)),
        _add(cubes, m[5]),
    )


def _whole_weights_of_two(g: Line) -> Line:
    """Weights of two results, times 2."""
    ends = _add(g[0], g[2])
    return _add(g[0], g[0]), _add(ends, g[1]), _subtract(ends, g[1]), _add(g[2], g[2])


def _whole_input_of_four(d: Line) -> Line:
    """At the points 0, ±1, ±2 and ∞; the numbers grow tenfold."""
    even, odd = _subtract(d[4], _scale(4, d[2])), _subtract(d[3], _scale(4, d[1]))
    far, twice = _subtract(d[4], d[2]), _subtract(d[3], d[1])
    twice = _add(twice, twice)
    return (
        _add(_scale(4, _subtract(d[0], d[2])), far),
        _add(even, odd),
        _subtract(even, odd),
        _add(far, twice),
        _subtract(far, twice),
        _add(_scale(4, _subtract(d[1], d[3])), _subtract(d[5], d[3])),
    )


def _whole_weights_of_four(g: Line) -> Line:
    """Their factors of 1/24 and more are applied to the products, times 24."""
    ends, far = _add(g[0], g[2]), _add(g[0], _scale(4, g[2]))
    twice = _add(g[1], g[1])
    return (
        g[0],
        _add(ends, g[1]),
        _subtract(ends, g[1]),
        _add(far, twice),
        _subtract(far, twice),
        g[2],
    )


def _whole_products_of_four(m: Line) -> Line:
    """The results times 24."""
    near, near_odd = _scale(4, _add(m[1], m[2])), _scale(4, _subtract(m[1], m[2]))
    far, far_odd = _add(m[3], m[4]), _subtract(m[3], m[4])
    far_odd = _add(far_odd, far_odd)
    return (
        _add(_scale(6, m[0]), _subtract(far, near)),
        _subtract(far_odd, near_odd),
        _subtract(_scale(4, far), near),
        _add(_subtract(_scale(4, far_odd), near_odd), _scale(24, m[5])),
    )


TWO = Lines(2, _input_of_two, _weights_of_two, _products_of_two, tuple(range(4)))
FOUR = Lines(4, _input_of_four, _weights_of_four, _products_of_four, tuple(range(6)))
TWO_STRIDED = Lines(2, _input_at_two, _weights_at_two, _products_at_two, (0, 1, 2, 3, 3), stride=2)
F2 = Transform(TWO, TWO, 512)
F2X4 = Transform(TWO, FOUR, 256)
F4 = Transform(FOUR, FOUR, 256)
WHOLE_TWO = Lines(2, _input_of_two, _whole_weights_of_two, _products_of_two, tuple(range(4)))
WHOLE_FOUR = Lines(
    4, _whole_input_of_four, _whole_weights_of_four, _whole_products_of_four, tuple(range(6))
)
WHOLE_F2 = Transform(WHOLE_TWO, WHOLE_TWO, 0, 4)
WHOLE_F2X4 = Transform(WHOLE_TWO, WHOLE_FOUR, 0, 48)
F2_STRIDED = Transform(TWO_STRIDED, TWO_STRIDED, 256)


def down_columns(along: Callable[[Line], Line], square: Sequence[Line]) -> list[list[Expr]]:
    """A transform along the columns of a square; its rows follow with ``along`` itself."""
    columns = [along([row[k] for row in square]) for k in range(len(square[0]))]
    return [[column[k] for column in columns] for k in range(len(columns[0]))]

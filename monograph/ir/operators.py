"""Python's operators on anything that stands for a tensor: ``x + 1``, ``a @ b``, ``x[:, 0]``.

The mixin names functions and the function table (filled by ``monograph.ops``) says what they do, so
that values of a graph and variables of a pattern share one set of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from monograph.ir.graph import Value

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])


def function(definition: FunctionType) -> FunctionType:
    """Register a public function on values under its own name; ``monograph.functional`` has it."""
    name = definition.__name__
    if name in _FUNCTIONS:
        raise ValueError(f"two functions are called {name!r}")
    _FUNCTIONS[name] = definition
    return definition


def functions() -> dict[str, Callable[..., Any]]:
    """Every registered function by name."""
    return _FUNCTIONS


NOT_A_NUMBER = (
    "a traced value has no number while the graph is built: leave float() and int() away, "
    "and say .astype where another dtype is meant"
)


class Operators:
    """The operators; each calls the function of the same meaning."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """What ``np.tanh(x)`` and ``array + x`` call."""
        from monograph.frontends.numpy import call_ufunc

        return call_ufunc(ufunc, method, inputs, named)

    def __array_function__(self, function: Any, _: Any, arguments: Any, named: Any) -> Any:
        """What ``np.sum(x)`` and every other function of NumPy calls."""
        from monograph.frontends.numpy import call_function

        return call_function(function, arguments, named)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "a traced value has no numbers while the graph is built: NumPy cannot make an array "
            "of it, and what a function needs them for cannot be traced. numpy.take(array, x, 0) "
            "is array[x], and numpy.stack makes one value of several"
        )

    def __add__(self, other: Any) -> Value:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _call("divide", other, self)

    def __floordiv__(self, other: Any) -> Value:
        return _call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Value:
        return _call("floor_divide", other, self)

    def __mod__(self, other: Any) -> Value:
        return _call("remainder", self, other)

    def __rmod__(self, other: Any) -> Value:
        return _call("remainder", other, self)

    def __divmod__(self, other: Any) -> tuple[Value, Value]:
        return self // other, self % other

    def __pow__(self, other: Any) -> Value:
        return _call("power", self, other)

    def __rpow__(self, other: Any) -> Value:
        return _call("power", other, self)

    def __matmul__(self, other: Any) -> Value:
        return _call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return _call("matmul", other, self)

    def __neg__(self) -> Value:
        return _call("negate", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Value:
        return _call("abs", self)

    def __invert__(self) -> Value:
        return _call("bitwise_not", self)

    def __and__(self, other: Any) -> Value:
        return _call("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Value:
        return _call("bitwise_and", other, self)

    def __or__(self, other: Any) -> Value:
        return _call("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Value:
        return _call("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Value:
        return _call("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Value:
        return _call("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Value:
        return _call("shift_left", self, other)

    def __rshift__(self, other: Any) -> Value:
        return _call("shift_right", self, other)

    def __lt__(self, other: Any) -> Value:
        return _call("less", self, other)

    def __le__(self, other: Any) -> Value:
        return _call("less_equal", self, other)

    def __gt__(self, other: Any) -> Value:
        return _call("greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return _call("greater_equal", self, other)

    def __getitem__(self, key: Any) -> Value:
        return _call("getitem", self, key)

    def __setitem__(self, key: Any, other: Any) -> None:
        raise TypeError(
            "a traced value never changes: monograph.functional.where, concat and scatter make "
            "another one"
        )

    def __bool__(self) -> bool:
        raise TypeError(
            "a traced value has no truth while the graph is built: "
            "use monograph.functional.cond or where, or compare with `is`"
        )

    def __float__(self) -> float:
        raise TypeError(NOT_A_NUMBER)

    def __int__(self) -> int:
        raise TypeError(NOT_A_NUMBER)

    def __complex__(self) -> complex:
        raise TypeError(NOT_A_NUMBER)

    def __iter__(self) -> Iterator[Value]:
        value: Any = self
        if not value.rank or not isinstance(value.shape[0], int):
            raise TypeError(
                f"a traced value of type {value.type} cannot be iterated: it has no rows, or not a "
                "known number of them; monograph.functional.scan visits them"
            )
        return iter([value[row] for row in range(value.shape[0])])


def _call(name: str, *arguments: Any) -> Value:
    if name not in _FUNCTIONS:
        import monograph.ops

        monograph.ops.load_operators()
    result: Value = _FUNCTIONS[name](*arguments)
    return result

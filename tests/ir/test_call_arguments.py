"""Arguments by position and by name: each is taken once, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph.errors import InputError
from monograph.ir.call_arguments import in_order
from monograph.runtime.compiled import CompiledFunction

X = np.arange(3, dtype=np.float32)
WRONG = [
    ((X, X), {"bogus": 1}, "unexpected argument 'bogus'"),
    ((X,), {"x": 5 * X}, "multiple values for argument 'x'"),
    ((X,), {"bogus": X}, "unexpected argument 'bogus'"),
    ((), {"y": X}, "missing arguments: 'x'"),
]


def test_names_follow_positions() -> None:
    assert in_order("abc", (1,), {"c": 3, "b": 2}) == (1, 2, 3)
    assert in_order((), (), {}) == ()


@pytest.mark.parametrize(("positional", "named", "problem"), WRONG)
def test_compiled_functions_and_executables_drop_no_argument(
    positional: tuple[Any, ...], named: dict[str, Any], problem: str
) -> None:
    compiled = monograph.compile(lambda x, y: x - y, X, X)
    assert isinstance(compiled, CompiledFunction)
    for called in (compiled, compiled.executable):
        with pytest.raises(InputError, match=problem):
            called(*positional, **named)


def test_a_wrong_number_names_the_parameters() -> None:
    compiled = monograph.compile(lambda x, y: x - y, X, X)
    with pytest.raises(InputError, match="missing arguments: 'y'"):
        compiled(X)
    with pytest.raises(InputError, match="too many arguments: 2 expected, 3 given") as caught:
        compiled(X, X, X)
    assert caught.value.expected == "(x, y)"


def test_an_executable_takes_names_after_positions() -> None:
    compiled = monograph.compile(lambda x, y: x - y, X, X)
    (result,) = compiled.executable(X, y=2 * X)
    np.testing.assert_array_equal(result, -X)

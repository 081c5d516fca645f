"""Small programs as built-in functions: their arguments are looked at by compiled code.

:mod:`monograph.targets.cpu.entry_point.python_call` has the code, one for all programs; here it is
compiled, once a process, and given the description of one program: what its inputs must be like and
what its outputs are. The result is a function of Python that returns None where it cannot do it,
and is then asked the slower way. That is so for nodes that the interpreter runs, and where much
memory is needed for intermediate values. A program with symbolic sizes has a function for each of
the sizes that it was called with again.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import llvmlite.binding as llvm
import numpy as np

from monograph.config import timeout_setting
from monograph.deadline import has_deadline
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.types import Array, DType
from monograph.program.return_forms import ONE
from monograph.runtime.arguments import Arguments, Expected
from monograph.runtime.cpu.array_layout import array_layout
from monograph.runtime.cpu.native import Native
from monograph.runtime.cpu.shared_code import compile_quickly, load_for_good, load_or_compile
from monograph.runtime.device import cannot
from monograph.runtime.locks import ForkedLock
from monograph.runtime.output_memory import MAX_MALLOC_BYTES, OutputPool
from monograph.targets.cpu.entry_point.python_call import (
    FUNCTIONS,
    INPUT_WORDS,
    MOST_AXES,
    OUTPUT_WORDS,
    TensorLayout,
    call_module,
)

LARGEST_ARENA = 1 << 20
"""Bytes of intermediate values up to which a program may keep them for these calls alone."""
MOST_KNOWN = 4
"""For how many sizes of its symbolic dimensions a program has functions at a time."""
MOST_LEARNT = 256
"""How many it makes in all: a program whose sizes change all the time is called otherwise."""
MOST_RECENT = 8
"""Among how many sizes one has to come again to take the place of another's function."""
_FASTCALL = 0x80
"""Python's name for functions that take an array of arguments and their number."""
_PYTHON_FUNCTIONS = FUNCTIONS[: FUNCTIONS.index("empty")]


class _Method(ctypes.Structure):
    """What Python wants to know of a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


class ArgumentKind(Protocol):
    """What programs are called with: arrays or tensors."""

    name: str
    layout: TensorLayout | None
    classes: tuple[type, ...]
    functions: tuple[int, ...]
    """``empty``, ``wrap`` and ``forget``."""
    largest: int
    """Bytes of an output up to which ``empty`` has a piece at hand; others come from a pool."""

    def dtype(self, dtype: DType) -> int | None:
        """What says in an argument that it is of a dtype; None if such are not taken."""

    def stride(self, expected: Expected) -> int:
        """What strides are counted in, in bytes."""

    def output(self, shape: tuple[int, ...], dtype: DType, held: list[object]) -> tuple[int, ...]:
        """Dtype, axes, sizes and strides of an output; ``held`` keeps what they point to."""

    def converter(self, dtype: DType) -> Callable[[Array], Any] | None:
        """What makes an output of an array on memory of the pool, if it is not that array."""


class ArrayKind:
    """Calls with NumPy arrays."""

    name = "call_arrays"
    layout: TensorLayout | None = None
    classes: tuple[type, ...] = (np.ndarray,)
    largest: int = MAX_MALLOC_BYTES

    def __init__(self) -> None:
        self.functions: tuple[int, ...] = (id(np.empty), 0, 0)

    def dtype(self, dtype: DType) -> int | None:
        """Arrays refer to one object for each dtype of NumPy's."""
        return id(dtype.numpy)

    def stride(self, expected: Expected) -> int:
        """Arrays count in bytes."""
        return 1

    def output(self, shape: tuple[int, ...], dtype: DType, held: list[object]) -> tuple[int, ...]:
        """A tuple and a dtype, as ``np.empty`` takes them."""
        held += (shape, dtype.numpy)
        return id(dtype.numpy), len(shape), id(shape), 0

    def converter(self, dtype: DType) -> Callable[[Array], Any] | None:
        """It is that array."""
        return None


class Description(np.ndarray[Any, np.dtype[np.int64]]):
    """What the code knows of one program; it keeps alive what its words refer to."""

    held: tuple[object, ...]


def _describe(
    native: Native,
    sizes: tuple[int, ...],
    kind: ArgumentKind,
    form: int,
    rows: tuple[Array, Array],
    held: object,
) -> Description:
    inputs, outputs = rows
    frame = native.take_frame(sizes)
    functions = _function_table(kind)
    words = [
        native.entry_address,
        frame.address,
        frame.status_address,
        native.threads,
        0,
        id(None),
        len(inputs),
        inputs.ctypes.data,
        len(outputs),
        outputs.ctypes.data,
        form,
        functions.ctypes.data,
    ]
    description = np.array(words, np.int64).view(Description)
    description.held = (native, frame, functions, inputs, outputs, held)
    native.described_by(description)
    return description


class SizedCalls:
    """A program with symbolic sizes: a built-in function for each of those that came twice.

    Making one takes as long as many calls. So when there are as many as are kept, sizes have to
    come again soon: a text that grows by a word at a time never does.
    """

    def __init__(self, native: Native, arguments: Arguments, kind: ArgumentKind, form: int) -> None:
        self._program = native, arguments
        self._kind, self._form = kind, form
        self._functions: list[Callable[..., Any]] = []
        self._left = MOST_LEARNT
        self._recent: set[tuple[int, ...]] = set()
        self._variants = native.variants
        self._version = 0

    def __call__(self, *inputs: Any) -> Any:
        """What the program returns; None if it has to be asked in another way."""
        if self._variants is not None and self._variants.version != self._version:
            self._version, self._functions = self._variants.version, []
        for function in self._functions:
            found = function(*inputs)
            if found is not None:
                return found
        if self._left:
            self._learn(inputs)
        return None

    def _learn(self, inputs: Sequence[Any]) -> None:
        """Make a function for these sizes, for the next time, if they have been seen before."""
        native, arguments = self._program
        if not all(type(each) in self._kind.classes for each in inputs):
            return
        sizes = arguments.known_sizes(inputs)
        if sizes is None or (len(self._functions) == MOST_KNOWN and not self._is_recent(sizes)):
            return
        if self._variants is not None and self._variants.may_compile(sizes):
            return  # these calls are counted, and such a function would soon be another's
        self._left -= 1
        variant = None if self._variants is None else self._variants.ready(sizes)
        if variant is None or variant.native is None or variant.arguments is None:
            made = quick_call(native, arguments, self._kind, self._form, sizes)
        else:
            made = quick_call(variant.native, variant.arguments, self._kind, self._form)
        if made is not None:
            self._functions = [made, *self._functions[: MOST_KNOWN - 1]]

    def _is_recent(self, sizes: tuple[int, ...]) -> bool:
        """Whether these sizes came lately; from now on they did."""
        if sizes in self._recent:
            return True
        if len(self._recent) == MOST_RECENT:
            self._recent.clear()
        self._recent.add(sizes)
        return False


def unless_limited(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a program with loops, but for one that has a time limit: the slower way sets it.

    ``MONOGRAPH_TIMEOUT`` is read now, as all of the environment is when a program is made.
    """
    if timeout_setting(os.environ) is not None:
        return cannot

    def checked(*inputs: Any) -> Any:
        return None if has_deadline() else call(*inputs)

    return checked


def quick_call(
    native: Native, arguments: Arguments, kind: ArgumentKind, form: int, sizes: tuple[int, ...] = ()
) -> Callable[..., Any] | None:
    """The program as a built-in function; None if it is not one that can be called so."""
    if array_layout() is None or not _is_simple(native, sizes):
        return None
    if form == ONE and len(native.outputs) != 1:
        return None
    bindings = dict(zip(native.program.sizes, sizes, strict=True))
    held: list[object] = []
    inputs = _input_rows(native, arguments, kind, bindings)
    outputs = _output_rows(native, kind, bindings, held)
    if inputs is None or outputs is None:
        return None
    return _make_builtin(kind, _describe(native, sizes, kind, form, (inputs, outputs), held))


def _is_simple(native: Native, sizes: tuple[int, ...]) -> bool:
    """Whether all of it is native, its arena is small, and each input has one slot.

    Memory with fences is made for each call by ``Native.run``.
    """
    if native.fences is not None or native.calls:
        return False
    if native.call_plan(sizes).layout.plan.peak > LARGEST_ARENA:
        return False
    numbers = sorted(number for _, number in native.inputs)
    return numbers == list(range(len(native.graph.inputs)))


def _input_rows(
    native: Native, arguments: Arguments, kind: ArgumentKind, bindings: Mapping[Symbol, int]
) -> Array | None:
    slots = {number: slot for slot, number in native.inputs}
    values = arguments.graph.inputs
    rows = np.zeros((len(values), INPUT_WORDS), np.int64)
    classes = [id(each) for each in kind.classes]
    for k, (each, value) in enumerate(zip(arguments.expected, values, strict=True)):
        word = kind.dtype(value.tensor.dtype)
        shape = tuple(evaluate_dim(dim, bindings) for dim in value.tensor.shape)
        if word is None or len(shape) > MOST_AXES or 0 in shape:
            return None
        strides = each.strides or row_major(shape, each.dtype.itemsize)
        axes = len(shape)
        rows[k, :6] = slots[k], classes[0], classes[-1], word, axes, each.dtype.itemsize
        rows[k, 6 : 6 + axes] = shape
        unit = kind.stride(each)
        rows[k, 6 + MOST_AXES : 6 + MOST_AXES + axes] = [stride // unit for stride in strides]
    return rows


def _output_rows(
    native: Native, kind: ArgumentKind, bindings: Mapping[Symbol, int], held: list[object]
) -> Array | None:
    rows = np.zeros((len(native.outputs), OUTPUT_WORDS), np.int64)
    for k, (number, slot) in enumerate(native.outputs):
        shape = tuple(evaluate_dim(dim, bindings) for dim in slot.shape)
        nbytes = slot.dtype.numpy.itemsize * math.prod(shape)
        if kind.dtype(slot.dtype) is None or not nbytes:
            return None
        rows[k, :5] = (number, *kind.output(shape, slot.dtype, held))
        if nbytes > kind.largest:
            maker = _maker(native.pool, nbytes, slot.dtype, shape, kind.converter(slot.dtype))
            held.append(maker)
            rows[k, 6] = id(maker)
    return rows


def _maker(
    pool: OutputPool,
    nbytes: int,
    dtype: DType,
    shape: tuple[int, ...],
    convert: Callable[[Array], Any] | None,
) -> Callable[[], Any]:
    """What lends the memory of a large output, which is used again once nobody looks at it."""
    lend, numpy = pool.acquire, dtype.numpy
    if convert is None:
        return lambda: lend(nbytes).as_array(numpy, shape)
    return lambda: convert(lend(nbytes).as_array(numpy, shape))


def row_major(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """The strides of rows that follow one another."""
    strides = []
    for size in reversed(shape):
        strides.append(unit)
        unit *= size
    return tuple(reversed(strides))


def _function_table(kind: ArgumentKind) -> Array:
    python = [_address(getattr(ctypes.pythonapi, name)) for name in _PYTHON_FUNCTIONS]
    return np.array([*python, *kind.functions], np.int64)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# The code -----------------------------------------------------------------------------------------

_lock = ForkedLock()
_methods: dict[str, _Method] = {}
"""The functions that were compiled; Python refers to their descriptions for good."""


def _make_builtin(kind: ArgumentKind, description: Description) -> Callable[..., Any]:
    """A function of Python whose ``self`` is a description."""
    with _lock:
        if kind.name not in _methods:
            _methods[kind.name] = _compile_method(kind)
        method = _methods[kind.name]
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(ctypes.addressof(method), description, None)
    return made


def _compile_method(kind: ArgumentKind) -> _Method:
    layout = array_layout()
    assert layout is not None, "calls are only made where the layout of arrays is known"
    text = call_module(llvm.get_process_triple(), layout, kind.layout)
    compiled = load_or_compile(kind.name, text, compile_quickly)
    address = load_for_good(compiled, (kind.name,))[kind.name]
    return _Method(kind.name.encode(), address, _FASTCALL, None)

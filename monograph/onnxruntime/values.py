"""``OrtValue``: a tensor, or a list of them, that is passed around by its memory.

One that is made of an array *is* that array: writing to the array writes to the value. The memory
of others (an address, a DLPack capsule) is taken as it lies, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from monograph.frontends.onnx.types import dtype_of_code
from monograph.ir.types import Array, dtype_of
from monograph.onnxruntime.exceptions import InvalidArgument
from monograph.onnxruntime.memory import CPU, OrtDevice, OrtMemoryInfo, check_device
from monograph.onnxruntime.model_facts import array_type, element_code


class _Capsule:
    """A DLPack capsule of the processor's memory, as NumPy takes it."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class _TensorHead(ctypes.Structure):
    """How the tensor in a DLPack capsule begins."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


_UNSIGNED = 1
"""The kind of unsigned integers in DLPack."""


def is_dlpack_uint8_tensor(capsule: Any) -> bool:
    """Whether bytes are in a DLPack capsule: they may stand for truth values."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    head = _TensorHead.from_address(pointer_of(capsule, b"dltensor"))
    return (head.kind, head.bits) == (_UNSIGNED, 8)


class OrtValue:
    """A tensor, a list of tensors, or nothing; a tensor's memory is shared, never copied."""

    def __init__(self, contents: Any) -> None:
        self._contents = contents

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Array,
        /,
        device_type: str | OrtDevice = CPU,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """The value that lies in an array's memory; text is copied."""
        check_device(device_type)
        array = np.asarray(numpy_obj)
        if array.dtype.kind in "USV":
            return OrtValue(as_text(array))
        element_code(array)  # an error for what is no tensor
        return OrtValue(np.ascontiguousarray(array).reshape(array.shape))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, /, onnx_element_type: int) -> OrtValue:
        """The value in an array's memory, read as elements of another type of the same width."""
        dtype = dtype_of_code(onnx_element_type, "an OrtValue").numpy
        if dtype.itemsize != data.dtype.itemsize:
            raise RuntimeError(
                f"elements of {data.dtype} cannot be read as {dtype}: they are of another width"
            )
        return OrtValue(np.ascontiguousarray(data).view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str | OrtDevice = CPU,
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Memory for a tensor, with nothing in it yet."""
        check_device(device_type)
        return OrtValue(np.empty(tuple(shape), element_dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any, /, is_bool_tensor: bool = False) -> OrtValue:
        """The value in the memory of whatever tells of itself by DLPack."""
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    @property
    def _ortvalue(self) -> OrtValue:
        """Itself: programs reach for the value of ONNX Runtime's compiled module by this name."""
        return self

    def _get_c_value(self) -> OrtValue:
        """The same."""
        return self

    def numpy(self) -> Array:
        """The tensor as an array, in the same memory."""
        if not self.is_tensor():
            raise RuntimeError("Only OrtValues that are Tensors are convertible to Numpy objects")
        array: Array = self._contents
        return array

    def to_dlpack(self) -> Any:
        """A capsule of the same memory."""
        return self.__dlpack__()

    def __dlpack__(self, **given: Any) -> Any:
        return self.numpy().__dlpack__(**{k: v for k, v in given.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype, copy=copy)

    def update_inplace(self, data: Any, /) -> None:
        """Give the tensor other contents, in its own memory."""
        source = data.numpy() if isinstance(data, OrtValue) else np.asarray(data)
        own = self.numpy()
        if source.shape != own.shape or source.dtype != own.dtype:
            raise RuntimeError(
                f"The shape and the type of the new contents must be {own.dtype}{list(own.shape)}, "
                f"not {source.dtype}{list(source.shape)}"
            )
        own[...] = source

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self.numpy().ctypes.data)

    def device_name(self) -> str:
        """The device that it is on."""
        return CPU

    def shape(self) -> list[int]:
        """The sizes of the tensor, or how many a list has."""
        return list(self._contents.shape) if self.is_tensor() else [len(self._contents)]

    def data_type(self) -> str:
        """Its type as text: ``tensor(float)``."""
        if self.is_tensor():
            return array_type(self._contents)
        return f"seq({array_type(np.asarray(self._contents[0]))})" if self._contents else "seq()"

    def element_type(self) -> int:
        """The number of ``TensorProto.DataType`` of its elements."""
        return element_code(self.numpy())

    def tensor_size_in_bytes(self) -> int:
        """How much memory the tensor takes."""
        return int(self.numpy().nbytes)

    def has_value(self) -> bool:
        """Whether there is anything in it."""
        return self._contents is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._contents, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor: none is."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of tensors."""
        return isinstance(self._contents, list)


class OrtValueVector:
    """A list of values."""

    def __init__(self, values: Iterable[OrtValue] = ()) -> None:
        self._values = list(values)

    def push_back(self, value: OrtValue) -> None:
        """Add one."""
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._values)

    def __getitem__(self, place: int) -> OrtValue:
        return self._values[place]


def contents_of(item: Any) -> Any:
    """The array or list in an ``OrtValue``; anything else as it is."""
    return item._contents if isinstance(item, OrtValue) else item


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Give each of the second values the contents of the first, in its own memory."""
    if len(src) != len(dst):
        raise InvalidArgument(f"{len(src)} values cannot be copied to {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """A dtype by NumPy's name or class, or by the number of ``TensorProto.DataType``."""
    if isinstance(element_type, int):
        return dtype_of_code(element_type, "an OrtValue").numpy
    return dtype_of(np.dtype(element_type)).numpy


def memory_at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """The array that lies at an address, which the caller keeps alive."""
    is_number = isinstance(element_type, int)
    if not is_number and np.dtype(element_type).kind in "OUS":
        element_type = TensorProto.STRING
    if element_type == TensorProto.STRING:
        raise RuntimeError("Only binding non-string Tensors is supported")
    dtype = element_dtype(element_type)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * max(count, 1)).from_address(address)
    array: Array = np.frombuffer(memoryview(memory), np.uint8, count).view(dtype)
    return array.reshape(tuple(shape))


def as_text(array: Array) -> Array:
    """An array of words, of bytes or of objects, as objects that are text."""
    if array.dtype.kind == "V":
        array = array.view(f"S{array.dtype.itemsize}")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array.astype(object)

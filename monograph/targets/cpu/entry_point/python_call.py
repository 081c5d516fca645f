"""A function of Python, in LLVM's text, that calls a program: no line of Python runs in between.

A small program takes less time than Python needs to look at its arguments. So the looking is
compiled too. ``call_arrays`` and ``call_tensors`` have the signature of a built-in function
(``METH_FASTCALL``: self, arguments, how many); what they know of one program, its *description*, is
the memory of an integer array that is given to them as ``self``:

    word   0  the program's entry         6  how many inputs
           1  its table of addresses      7  their rows of ``INPUT_WORDS``
           2  its status                  8  how many outputs
           3  threads                     9  their rows of ``OUTPUT_WORDS``
           4  whether a call is running  10  what is returned: ``ONE``, ``TUPLE`` or ``LIST``
           5  the object None            11  functions of Python and torch, ``FUNCTIONS``

Each input is compared with its row (class, dtype, sizes, strides) and its address stored in the
table; each output is made and stored likewise; then the program runs, without Python's lock. Where
anything is not as it should be, None is returned, nothing has happened, and the slower way says
what is wrong. So it is if another thread is using the table. What a signal raises while a loop runs
(:mod:`monograph.targets.cpu.entry_point.interrupts`) is raised by the call.
"""

from __future__ import annotations

from string import Template

from monograph.dataclass import dataclass
from monograph.program.return_forms import ONE, TUPLE

MOST_AXES = 5
"""Sizes up to this number stand inside a tensor; those of more axes stand elsewhere."""
INPUT_WORDS = 6 + 2 * MOST_AXES
"""Slot, class, another class or 0, dtype, number of axes, bytes an element, sizes, strides."""
OUTPUT_WORDS = 7
"""Slot, dtype, number of axes, sizes (an address, or a tuple), address of strides, the object, and
what is called instead to make it, or 0."""
FUNCTIONS = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_Clear",
    "PyErr_Occurred",
    "Py_IncRef",
    "Py_DecRef",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyList_New",
    "PyList_SetItem",
    "PyObject_Vectorcall",
    "empty",
    "wrap",
    "forget",
)
"""The functions in the order of their table: of Python, then what makes an output.

``empty`` is NumPy's object of that name for arrays, and a function of torch's stable interface for
tensors; ``wrap`` makes a Python object of a tensor, and ``forget`` frees what it was wrapped from.
"""


@dataclass(frozen=True)
class ArrayLayout:
    """Where an array's fields are, in bytes from its beginning."""

    data: int
    axes: int
    sizes: int
    strides: int
    dtype: int


@dataclass(frozen=True)
class TensorLayout:
    """Where a tensor's fields are, in bytes: in the Python object, the tensor, and its storage.

    ``keys`` are the dispatch keys of tensors that lie in the processor's memory and are nothing
    else: not sparse, negated, conjugated, batched, traced or of another device.
    """

    tensor: int
    storage: int
    axes: int
    offset: int
    dtype: int
    keys_at: int
    data: int
    keys: tuple[int, int]


def call_module(triple: str, array: ArrayLayout, tensor: TensorLayout | None) -> str:
    """LLVM's text of ``call_tensors``, or of ``call_arrays`` if no layout of tensors is given."""
    places = {"object_type": 8, "array_data": array.data}
    parts = [f'target triple = "{triple}"\n', _EQUAL]
    if tensor is None:
        parts.append(_fill(_ARRAYS, places, **vars(array)))
        parts.append(_fill(_CALL, places, kind="array", name="call_arrays"))
        return "\n".join(parts)
    fields = {**vars(tensor), "usual": tensor.keys[0], "inference": tensor.keys[1]}
    fields["sizes"] = tensor.axes + 8
    fields["strides"] = tensor.axes + 8 + 8 * MOST_AXES
    parts.append(_fill(_TENSORS, places, **fields))
    parts.append(_fill(_CALL, places, kind="tensor", name="call_tensors"))
    return "\n".join(parts)


def _fill(text: str, places: dict[str, int], **fields: object) -> str:
    numbers = {name: k for k, name in enumerate(FUNCTIONS)}
    return Template(text).substitute(
        places,
        input_words=INPUT_WORDS,
        output_words=OUTPUT_WORDS,
        row_strides=6 + MOST_AXES,
        tuple_form=TUPLE,
        one_form=ONE,
        **numbers,
        **fields,
    )


_EQUAL = """
; Whether sizes and strides are those of a row; the stride of an axis of one element is any.
define internal i1 @is_arranged(ptr %sizes, ptr %strides, ptr %own.sizes, ptr %own.strides, i64 %n)
{
entry:
  br label %test
test:
  %k = phi i64 [ 0, %entry ], [ %next, %following ]
  %done = icmp eq i64 %k, %n
  br i1 %done, label %same, label %size
size:
  %size.place = getelementptr i64, ptr %sizes, i64 %k
  %size.found = load i64, ptr %size.place
  %own.size.place = getelementptr i64, ptr %own.sizes, i64 %k
  %own.size = load i64, ptr %own.size.place
  %is.size = icmp eq i64 %size.found, %own.size
  br i1 %is.size, label %stride, label %other
stride:
  %stride.place = getelementptr i64, ptr %strides, i64 %k
  %stride.found = load i64, ptr %stride.place
  %own.stride.place = getelementptr i64, ptr %own.strides, i64 %k
  %own.stride = load i64, ptr %own.stride.place
  %is.stride = icmp eq i64 %stride.found, %own.stride
  %is.single = icmp eq i64 %own.size, 1
  %fits = or i1 %is.stride, %is.single
  br i1 %fits, label %following, label %other
following:
  %next = add i64 %k, 1
  br label %test
same:
  ret i1 true
other:
  ret i1 false
}
"""

_ARRAYS = """
; The address of an array that is what a row says; null if it is something else.
define internal ptr @locate_array(ptr %object, ptr %row) {
  %type.place = getelementptr i8, ptr %object, i64 $object_type
  %type = load i64, ptr %type.place
  %own.type.place = getelementptr i64, ptr %row, i64 1
  %own.type = load i64, ptr %own.type.place
  %is.array = icmp eq i64 %type, %own.type
  br i1 %is.array, label %look, label %other
look:
  %dtype.place = getelementptr i8, ptr %object, i64 $dtype
  %dtype = load i64, ptr %dtype.place
  %own.dtype.place = getelementptr i64, ptr %row, i64 3
  %own.dtype = load i64, ptr %own.dtype.place
  %is.dtype = icmp eq i64 %dtype, %own.dtype
  %axes.place = getelementptr i8, ptr %object, i64 $axes
  %axes = load i32, ptr %axes.place
  %n = sext i32 %axes to i64
  %own.axes.place = getelementptr i64, ptr %row, i64 4
  %own.axes = load i64, ptr %own.axes.place
  %is.rank = icmp eq i64 %n, %own.axes
  %is.alike = and i1 %is.dtype, %is.rank
  br i1 %is.alike, label %compare, label %other
compare:
  %sizes.place = getelementptr i8, ptr %object, i64 $sizes
  %sizes = load ptr, ptr %sizes.place
  %strides.place = getelementptr i8, ptr %object, i64 $strides
  %strides = load ptr, ptr %strides.place
  %own.sizes = getelementptr i64, ptr %row, i64 6
  %own.strides = getelementptr i64, ptr %row, i64 $row_strides
  %fits = call i1 @is_arranged(ptr %sizes, ptr %strides, ptr %own.sizes, ptr %own.strides, i64 %n)
  br i1 %fits, label %found, label %other
found:
  %data = call ptr @data_of_array(ptr %object)
  ret ptr %data
other:
  ret ptr null
}

define internal ptr @data_of_array(ptr %object) {
  %place = getelementptr i8, ptr %object, i64 $array_data
  %data = load ptr, ptr %place
  ret ptr %data
}

; A new array: empty(shape, dtype).
define internal ptr @make_array(ptr %row, ptr %functions) {
  %given = alloca [2 x ptr]
  %shape.place = getelementptr i64, ptr %row, i64 3
  %shape = load ptr, ptr %shape.place
  store ptr %shape, ptr %given
  %dtype.place = getelementptr i64, ptr %row, i64 1
  %dtype = load ptr, ptr %dtype.place
  %second = getelementptr ptr, ptr %given, i64 1
  store ptr %dtype, ptr %second
  %call.place = getelementptr ptr, ptr %functions, i64 $PyObject_Vectorcall
  %call = load ptr, ptr %call.place
  %empty.place = getelementptr ptr, ptr %functions, i64 $empty
  %empty = load ptr, ptr %empty.place
  %made = call ptr %call(ptr %empty, ptr %given, i64 2, ptr null)
  ret ptr %made
}
"""

_TENSORS = """
; The address of a tensor that is what a row says; null if it is something else.
define internal ptr @locate_tensor(ptr %object, ptr %row) {
  %type.place = getelementptr i8, ptr %object, i64 $object_type
  %type = load i64, ptr %type.place
  %own.type.place = getelementptr i64, ptr %row, i64 1
  %own.type = load i64, ptr %own.type.place
  %other.type.place = getelementptr i64, ptr %row, i64 2
  %other.type = load i64, ptr %other.type.place
  %is.plain = icmp eq i64 %type, %own.type
  %is.parameter = icmp eq i64 %type, %other.type
  %is.tensor = or i1 %is.plain, %is.parameter
  br i1 %is.tensor, label %look, label %other
look:
  %tensor.place = getelementptr i8, ptr %object, i64 $tensor
  %tensor = load ptr, ptr %tensor.place
  %keys.place = getelementptr i8, ptr %tensor, i64 $keys_at
  %keys = load i64, ptr %keys.place
  %is.usual = icmp eq i64 %keys, $usual
  %is.inference = icmp eq i64 %keys, $inference
  %is.dense = or i1 %is.usual, %is.inference
  %dtype.place = getelementptr i8, ptr %tensor, i64 $dtype
  %dtype.short = load i16, ptr %dtype.place
  %dtype = zext i16 %dtype.short to i64
  %own.dtype.place = getelementptr i64, ptr %row, i64 3
  %own.dtype = load i64, ptr %own.dtype.place
  %is.dtype = icmp eq i64 %dtype, %own.dtype
  %axes.place = getelementptr i8, ptr %tensor, i64 $axes
  %n = load i64, ptr %axes.place
  %own.axes.place = getelementptr i64, ptr %row, i64 4
  %own.axes = load i64, ptr %own.axes.place
  %is.rank = icmp eq i64 %n, %own.axes
  %is.number = and i1 %is.dense, %is.dtype
  %is.alike = and i1 %is.number, %is.rank
  br i1 %is.alike, label %compare, label %other
compare:
  %sizes = getelementptr i8, ptr %tensor, i64 $sizes
  %strides = getelementptr i8, ptr %tensor, i64 $strides
  %own.sizes = getelementptr i64, ptr %row, i64 6
  %own.strides = getelementptr i64, ptr %row, i64 $row_strides
  %fits = call i1 @is_arranged(ptr %sizes, ptr %strides, ptr %own.sizes, ptr %own.strides, i64 %n)
  br i1 %fits, label %found, label %other
found:
  %data = call ptr @storage_of(ptr %tensor)
  %is.null = icmp eq ptr %data, null
  br i1 %is.null, label %other, label %there
there:
  %offset.place = getelementptr i8, ptr %tensor, i64 $offset
  %offset = load i64, ptr %offset.place
  %size.place = getelementptr i64, ptr %row, i64 5
  %size = load i64, ptr %size.place
  %bytes = mul i64 %offset, %size
  %first = getelementptr i8, ptr %data, i64 %bytes
  ret ptr %first
other:
  ret ptr null
}

define internal ptr @storage_of(ptr %tensor) {
  %place = getelementptr i8, ptr %tensor, i64 $storage
  %storage = load ptr, ptr %place
  %data.place = getelementptr i8, ptr %storage, i64 $data
  %data = load ptr, ptr %data.place
  ret ptr %data
}

define internal ptr @data_of_tensor(ptr %object) {
  %place = getelementptr i8, ptr %object, i64 $tensor
  %tensor = load ptr, ptr %place
  %data = call ptr @storage_of(ptr %tensor)
  ret ptr %data
}

; A new tensor in the processor's memory, as an object of Python.
define internal ptr @make_tensor(ptr %row, ptr %functions) {
entry:
  %handle.place = alloca ptr
  %dtype.place = getelementptr i64, ptr %row, i64 1
  %dtype = load i32, ptr %dtype.place
  %axes.place = getelementptr i64, ptr %row, i64 2
  %axes = load i64, ptr %axes.place
  %sizes.place = getelementptr i64, ptr %row, i64 3
  %sizes = load ptr, ptr %sizes.place
  %strides.place = getelementptr i64, ptr %row, i64 4
  %strides = load ptr, ptr %strides.place
  %empty.place = getelementptr ptr, ptr %functions, i64 $empty
  %empty = load ptr, ptr %empty.place
  %wrap.place = getelementptr ptr, ptr %functions, i64 $wrap
  %wrap = load ptr, ptr %wrap.place
  %forget.place = getelementptr ptr, ptr %functions, i64 $forget
  %forget = load ptr, ptr %forget.place
  %code = call i32 %empty(
    i64 %axes, ptr %sizes, ptr %strides, i32 %dtype, i32 0, i32 0, ptr %handle.place)
  %is.made = icmp eq i32 %code, 0
  br i1 %is.made, label %made, label %failed
made:
  %handle = load ptr, ptr %handle.place
  %object = call ptr %wrap(ptr %handle)
  %freed = call i32 %forget(ptr %handle)
  ret ptr %object
failed:
  ret ptr null
}
"""

_CALL = """
define ptr @$name(ptr %self, ptr %arguments, i64 %given) {
entry:
  %description.place = getelementptr i8, ptr %self, i64 $array_data
  %description = load ptr, ptr %description.place
  %program = load ptr, ptr %description
  %table.place = getelementptr i64, ptr %description, i64 1
  %table = load ptr, ptr %table.place
  %status.place = getelementptr i64, ptr %description, i64 2
  %status = load ptr, ptr %status.place
  %threads.place = getelementptr i64, ptr %description, i64 3
  %threads = load i64, ptr %threads.place
  %running = getelementptr i64, ptr %description, i64 4
  %none.place = getelementptr i64, ptr %description, i64 5
  %none = load ptr, ptr %none.place
  %inputs.place = getelementptr i64, ptr %description, i64 6
  %inputs = load i64, ptr %inputs.place
  %input.rows.place = getelementptr i64, ptr %description, i64 7
  %input.rows = load ptr, ptr %input.rows.place
  %outputs.place = getelementptr i64, ptr %description, i64 8
  %outputs = load i64, ptr %outputs.place
  %output.rows.place = getelementptr i64, ptr %description, i64 9
  %output.rows = load ptr, ptr %output.rows.place
  %form.place = getelementptr i64, ptr %description, i64 10
  %form = load i64, ptr %form.place
  %functions.place = getelementptr i64, ptr %description, i64 11
  %functions = load ptr, ptr %functions.place
  %fits = icmp eq i64 %given, %inputs
  br i1 %fits, label %lease, label %refuse

lease:
  %before = atomicrmw xchg ptr %running, i64 1 acquire
  %is.free = icmp eq i64 %before, 0
  br i1 %is.free, label %locate.test, label %refuse

locate.test:
  %i = phi i64 [ 0, %lease ], [ %i.next, %located ]
  %all.located = icmp eq i64 %i, %inputs
  br i1 %all.located, label %make.test, label %locate
locate:
  %row = getelementptr [$input_words x i64], ptr %input.rows, i64 %i
  %argument.place = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %argument.place
  %data = call ptr @locate_$kind(ptr %argument, ptr %row)
  %is.located = icmp ne ptr %data, null
  br i1 %is.located, label %located, label %give.up
located:
  %slot = load i64, ptr %row
  %word = getelementptr ptr, ptr %table, i64 %slot
  store ptr %data, ptr %word
  %i.next = add i64 %i, 1
  br label %locate.test

make.test:
  %j = phi i64 [ 0, %locate.test ], [ %j.next, %placed ]
  %all.made = icmp eq i64 %j, %outputs
  br i1 %all.made, label %run, label %make
make:
  %output.row = getelementptr [$output_words x i64], ptr %output.rows, i64 %j
  %maker.place = getelementptr i64, ptr %output.row, i64 6
  %maker = load ptr, ptr %maker.place
  %is.small = icmp eq ptr %maker, null
  br i1 %is.small, label %make.small, label %make.large
make.small:
  %small = call ptr @make_$kind(ptr %output.row, ptr %functions)
  br label %checked
make.large:
  %call.place = getelementptr ptr, ptr %functions, i64 $PyObject_Vectorcall
  %call = load ptr, ptr %call.place
  %large = call ptr %call(ptr %maker, ptr null, i64 0, ptr null)
  br label %checked
checked:
  %object = phi ptr [ %small, %make.small ], [ %large, %make.large ]
  %is.made = icmp ne ptr %object, null
  br i1 %is.made, label %made, label %drop
made:
  %object.place = getelementptr i64, ptr %output.row, i64 5
  store ptr %object, ptr %object.place
  %j.next = add i64 %j, 1
  %output.data = call ptr @data_of_$kind(ptr %object)
  %is.there = icmp ne ptr %output.data, null
  br i1 %is.there, label %placed, label %drop
placed:
  %output.slot = load i64, ptr %output.row
  %output.word = getelementptr ptr, ptr %table, i64 %output.slot
  store ptr %output.data, ptr %output.word
  br label %make.test

run:
  %save.place = getelementptr ptr, ptr %functions, i64 $PyEval_SaveThread
  %save = load ptr, ptr %save.place
  %restore.place = getelementptr ptr, ptr %functions, i64 $PyEval_RestoreThread
  %restore = load ptr, ptr %restore.place
  %thread = call ptr %save()
  %code = call i32 %program(ptr %table, ptr %status, i64 %threads)
  call void %restore(ptr %thread)
  %is.done = icmp eq i32 %code, 0
  br i1 %is.done, label %gather, label %failed
failed:
  store i32 0, ptr %status
  %occurred.place = getelementptr ptr, ptr %functions, i64 $PyErr_Occurred
  %occurred = load ptr, ptr %occurred.place
  %exception = call ptr %occurred()
  %is.raised = icmp ne ptr %exception, null
  br label %drop

gather:
  %is.one = icmp eq i64 %form, $one_form
  br i1 %is.one, label %one, label %many
one:
  %one.place = getelementptr i64, ptr %output.rows, i64 5
  %one.object = load ptr, ptr %one.place
  br label %finish
many:
  %is.tuple = icmp eq i64 %form, $tuple_form
  %new.number = select i1 %is.tuple, i64 $PyTuple_New, i64 $PyList_New
  %new.place = getelementptr ptr, ptr %functions, i64 %new.number
  %new = load ptr, ptr %new.place
  %set.number = select i1 %is.tuple, i64 $PyTuple_SetItem, i64 $PyList_SetItem
  %set.place = getelementptr ptr, ptr %functions, i64 %set.number
  %set = load ptr, ptr %set.place
  %several = call ptr %new(i64 %outputs)
  %is.several = icmp ne ptr %several, null
  br i1 %is.several, label %fill.test, label %drop
fill.test:
  %k = phi i64 [ 0, %many ], [ %k.next, %fill ]
  %is.full = icmp eq i64 %k, %outputs
  br i1 %is.full, label %finish, label %fill
fill:
  %fill.row = getelementptr [$output_words x i64], ptr %output.rows, i64 %k
  %fill.place = getelementptr i64, ptr %fill.row, i64 5
  %fill.object = load ptr, ptr %fill.place
  %ignored = call i32 %set(ptr %several, i64 %k, ptr %fill.object)
  %k.next = add i64 %k, 1
  br label %fill.test

finish:
  %result = phi ptr [ %one.object, %one ], [ %several, %fill.test ]
  store atomic i64 0, ptr %running release, align 8
  ret ptr %result

; Something failed: let go of the outputs that were made. A loop that was broken off has raised an
; exception, which is the caller's; where something else failed, the slower way says what.
drop:
  %count = phi i64 [ %j, %checked ], [ %j.next, %made ], [ %outputs, %failed ], [ %outputs, %many ]
  %raises = phi i1 [ false, %checked ], [ false, %made ], [ %is.raised, %failed ], [ false, %many ]
  br i1 %raises, label %let.go, label %clear.error
clear.error:
  %clear.place = getelementptr ptr, ptr %functions, i64 $PyErr_Clear
  %clear = load ptr, ptr %clear.place
  call void %clear()
  br label %let.go
let.go:
  %release.place = getelementptr ptr, ptr %functions, i64 $Py_DecRef
  %release = load ptr, ptr %release.place
  br label %drop.test
drop.test:
  %d = phi i64 [ 0, %let.go ], [ %d.next, %drop.one ]
  %is.empty = icmp eq i64 %d, %count
  br i1 %is.empty, label %give.up, label %drop.one
drop.one:
  %drop.row = getelementptr [$output_words x i64], ptr %output.rows, i64 %d
  %drop.place = getelementptr i64, ptr %drop.row, i64 5
  %drop.object = load ptr, ptr %drop.place
  call void %release(ptr %drop.object)
  %d.next = add i64 %d, 1
  br label %drop.test

give.up:
  %is.error = phi i1 [ false, %locate ], [ %raises, %drop.test ]
  store atomic i64 0, ptr %running release, align 8
  br i1 %is.error, label %raise, label %refuse
raise:
  ret ptr null
refuse:
  %keep.place = getelementptr ptr, ptr %functions, i64 $Py_IncRef
  %keep = load ptr, ptr %keep.place
  call void %keep(ptr %none)
  ret ptr %none
}
"""

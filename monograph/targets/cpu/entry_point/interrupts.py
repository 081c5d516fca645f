"""Breaking off a loop, as LLVM IR: what programs with loops call as they turn.

A loop counts its turns down and *looks* when the count is used up:

    i32 monograph_look(ptr watch, ptr pace)          1 if the call is to be broken off

The *pace*, which each function that loops has of its own, says after how many turns: first after
one, then after twice as many each time, up to ``MAX_TURNS_BETWEEN_CHECKS``, for as long as less
than ``QUICK_NANOSECONDS`` nanoseconds lie between two looks; after fewer again where it is more
than ``SLOW_NANOSECONDS``. So short turns cost next to nothing, and a loop of long turns looks at
every turn.

A look finds that the time is up, or that another thread has found it, or (in the thread that made
the call, every ``SIGNAL_CHECK_NANOSECONDS`` nanoseconds) lets Python handle signals that have come
in: Ctrl-C is an exception then, and stays set. The *watch* is one call's, in the words below.

Python calls a program with loops, or with nodes for the interpreter, through

    i32 monograph_enter(ptr entry, ptr slots, ptr status, i64 threads)

which lets go of Python's lock and leaves an exception that was set inside to its caller. What runs
in Python is called by ``monograph_call_back``, which leaves its exception set likewise. A function
that ctypes makes native would not do: a signal that is handled at its first instruction, before any
``try``, is printed there and forgotten.
"""

from __future__ import annotations

from string import Template

BEGIN = "monograph_watch"
"""``void (ptr watch)``: a call begins; its ``LIMIT`` becomes a deadline."""

LOOK = "monograph_look"
ENTER = "monograph_enter"
CALL_BACK = "monograph_call_back"
DISPATCH = "monograph_dispatch"
"""``void (ptr function)``: what ``monograph_call_back`` calls with the table and a number."""

LIMIT, DEADLINE, SIGNALS_AT, OWNER, STOPPED = range(5)
WATCH_WORDS = 5
"""A watch: nanoseconds that a call may take, when that is, when to ask for signals next, the thread
that made the call, and whether it is broken off: 0, ``TIME_IS_UP`` or ``SIGNALLED``."""

NO_LIMIT = 2**63 - 1
TIME_IS_UP, SIGNALLED = 1, 2

LEFT, STRIDE, LAST = range(3)
PACE_WORDS = 3
"""A pace: turns until the next look, turns from look to look, and when the last one was."""

MAX_TURNS_BETWEEN_CHECKS = 256
"""From one look to the next: few enough that turns which grow long late are soon looked at."""
QUICK_NANOSECONDS = 1_000_000
SLOW_NANOSECONDS = 10_000_000
"""Nanoseconds between two looks up to which there are fewer of them, and from which on more."""
SIGNAL_CHECK_NANOSECONDS = 50_000_000
"""Nanoseconds from one question for signals to the next: taking Python's lock may take five
milliseconds where other threads run."""

PYTHON_FUNCTIONS = (
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyLong_FromLongLong",
    "PyObject_CallFunctionObjArgs",
    "Py_IncRef",
    "Py_DecRef",
)
"""What the module calls: whoever links it makes these known by name."""


def interrupts_module(triple: str) -> str:
    """The functions for a target triple, as the text of an LLVM module."""
    text = Template(_MODULE + _clock_of(triple)).substitute(
        no_limit=NO_LIMIT,
        time_is_up=TIME_IS_UP,
        signalled=SIGNALLED,
        most_turns=MAX_TURNS_BETWEEN_CHECKS,
        quick=QUICK_NANOSECONDS,
        slow=SLOW_NANOSECONDS,
        signals=SIGNAL_CHECK_NANOSECONDS,
        deadline=DEADLINE,
        signals_at=SIGNALS_AT,
        owner=OWNER,
        stopped=STOPPED,
        stride=STRIDE,
        last=LAST,
    )
    return f'target triple = "{triple}"\n{text}'


def _clock_of(triple: str) -> str:
    """A clock that is quick to read, and what tells one thread from another.

    Linux has one that only ticks (every 1 to 10 ms) and takes a few nanoseconds wherever it runs.
    """
    return _WINDOWS if "windows" in triple.partition("-")[2] else _POSIX


_MODULE = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)

@dispatcher = internal global ptr null

define void @monograph_dispatch(ptr %function) {
  call void @Py_IncRef(ptr %function)
  store ptr %function, ptr @dispatcher
  ret void
}

define i32 @monograph_enter(ptr %entry, ptr %slots, ptr %status, i64 %threads) {
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %entry(ptr %slots, ptr %status, i64 %threads)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %code
}

; 1 if the function raised an exception, which stays set.
define i32 @monograph_call_back(ptr %slots, i64 %number) {
enter:
  %lock = call i32 @PyGILState_Ensure()
  %address = ptrtoint ptr %slots to i64
  %first = call ptr @PyLong_FromLongLong(i64 %address)
  %second = call ptr @PyLong_FromLongLong(i64 %number)
  %no.first = icmp eq ptr %first, null
  %no.second = icmp eq ptr %second, null
  %none = or i1 %no.first, %no.second
  br i1 %none, label %failed, label %call
call:
  %function = load ptr, ptr @dispatcher
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(
      ptr %function, ptr %first, ptr %second, ptr null)
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %failed, label %done
done:
  call void @Py_DecRef(ptr %result)
  call void @PyGILState_Release(i32 %lock)
  ret i32 0
failed:
  call void @PyGILState_Release(i32 %lock)
  ret i32 1
}

define void @monograph_watch(ptr %watch) {
  %now = call i64 @now()
  %limit = load i64, ptr %watch
  %sum = call { i64, i1 } @llvm.sadd.with.overflow.i64(i64 %now, i64 %limit)
  %end = extractvalue { i64, i1 } %sum, 0
  %overflows = extractvalue { i64, i1 } %sum, 1
  %deadline = select i1 %overflows, i64 $no_limit, i64 %end
  %deadline.place = getelementptr i64, ptr %watch, i64 $deadline
  store i64 %deadline, ptr %deadline.place
  %signals.at = add i64 %now, $signals
  %signals.place = getelementptr i64, ptr %watch, i64 $signals_at
  store i64 %signals.at, ptr %signals.place
  %self = call i64 @this_thread()
  %owner.place = getelementptr i64, ptr %watch, i64 $owner
  store i64 %self, ptr %owner.place
  %stopped.place = getelementptr i64, ptr %watch, i64 $stopped
  store atomic i64 0, ptr %stopped.place monotonic, align 8
  ret void
}

define i32 @monograph_look(ptr %watch, ptr %pace) {
enter:
  %now = call i64 @now()
  call void @set_pace(ptr %pace, i64 %now)
  %stopped.place = getelementptr i64, ptr %watch, i64 $stopped
  %stopped = load atomic i64, ptr %stopped.place monotonic, align 8
  %is.stopped = icmp ne i64 %stopped, 0
  br i1 %is.stopped, label %stop, label %time
time:
  %deadline.place = getelementptr i64, ptr %watch, i64 $deadline
  %deadline = load i64, ptr %deadline.place
  %is.late = icmp sge i64 %now, %deadline
  br i1 %is.late, label %late, label %signals
late:
  store atomic i64 $time_is_up, ptr %stopped.place monotonic, align 8
  br label %stop
signals:
  %signals.place = getelementptr i64, ptr %watch, i64 $signals_at
  %signals.at = load atomic i64, ptr %signals.place monotonic, align 8
  %is.due = icmp sge i64 %now, %signals.at
  br i1 %is.due, label %due, label %go
due:
  %owner.place = getelementptr i64, ptr %watch, i64 $owner
  %owner = load i64, ptr %owner.place
  %self = call i64 @this_thread()
  %is.owner = icmp eq i64 %self, %owner
  br i1 %is.owner, label %ask, label %go
ask:
  %next = add i64 %now, $signals
  store atomic i64 %next, ptr %signals.place monotonic, align 8
  %lock = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %lock)
  %is.raised = icmp ne i32 %raised, 0
  br i1 %is.raised, label %signalled, label %go
signalled:
  store atomic i64 $signalled, ptr %stopped.place monotonic, align 8
  br label %stop
stop:
  ret i32 1
go:
  ret i32 0
}

; How many turns to go until the next look: by how long it took since the last one.
define internal void @set_pace(ptr %pace, i64 %now) {
  %stride.place = getelementptr i64, ptr %pace, i64 $stride
  %stride = load i64, ptr %stride.place
  %last.place = getelementptr i64, ptr %pace, i64 $last
  %last = load i64, ptr %last.place
  %spent = sub i64 %now, %last
  %twice = shl i64 %stride, 1
  %more = call i64 @llvm.umin.i64(i64 %twice, i64 $most_turns)
  %quarter = lshr i64 %stride, 2
  %fewer = call i64 @llvm.umax.i64(i64 %quarter, i64 1)
  %is.slow = icmp sgt i64 %spent, $slow
  %is.quick = icmp slt i64 %spent, $quick
  %or.same = select i1 %is.quick, i64 %more, i64 %stride
  %turns = select i1 %is.slow, i64 %fewer, i64 %or.same
  store i64 %turns, ptr %stride.place
  store i64 %turns, ptr %pace
  store i64 %now, ptr %last.place
  ret void
}
"""

_POSIX = """
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define internal i64 @now() {
  %time = alloca { i64, i64 }
  store { i64, i64 } zeroinitializer, ptr %time
  ; Linux's CLOCK_MONOTONIC_COARSE, and the CLOCK_MONOTONIC of macOS.
  %ignored = call i32 @clock_gettime(i32 6, ptr %time)
  %seconds = load i64, ptr %time
  %rest.place = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.place
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

define internal i64 @this_thread() {
  %self = call i64 @pthread_self()
  ret i64 %self
}
"""

_WINDOWS = """
declare i64 @GetTickCount64()
declare i32 @GetCurrentThreadId()

define internal i64 @now() {
  %milliseconds = call i64 @GetTickCount64()
  %nanoseconds = mul i64 %milliseconds, 1000000
  ret i64 %nanoseconds
}

define internal i64 @this_thread() {
  %self = call i32 @GetCurrentThreadId()
  %wide = zext i32 %self to i64
  ret i64 %wide
}
"""

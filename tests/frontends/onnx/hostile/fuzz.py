"""Damage right models at random and import what is left.

    python -m tests.frontends.onnx.hostile.fuzz --count 2000

A mutation changes bytes of the file or fields of the message; a number stands for it, so that any
one of them can be made again (``--only 1234``). Only one of our errors or a graph that verifies
may come out, soon and in little memory. ``--run`` also interprets the graphs that come out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import ModelProto

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.registry import converters
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType
from monograph.ir.verify import verify
from tests.frontends.onnx.hostile.sandbox import limit
from tests.frontends.onnx.hostile.seeds import seeds

SECONDS = 10.0
"""For one mutation."""

BATCH = 50
"""Mutations that share a child process."""

INTEGERS = (0, 1, -1, 2, 7, 64, 1000, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 3e38, 1e-45)


@dataclass(frozen=True)
class Finding:
    """What came of one mutation: ``graph``, the name of one of our errors, or a fault."""

    number: int
    kind: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether this must not happen."""
        return self.kind.startswith("!")


def mutated(number: int) -> bytes:
    """The file that a number stands for."""
    dice = np.random.default_rng(number)
    originals = list(_SEEDS.values())
    original = originals[number % len(originals)]
    if dice.random() < 0.35:
        return damage_bytes(original.SerializeToString(), dice)
    copy = ModelProto()
    copy.CopyFrom(original)
    for _ in range(int(dice.integers(1, 4))):
        damage_field(copy, dice)
    return bytes(copy.SerializeToString())


def damage_bytes(content: bytes, dice: np.random.Generator) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    result = bytearray(content)
    for _ in range(int(dice.integers(1, 5))):
        place = int(dice.integers(len(result) or 1))
        length = int(dice.integers(1, 9))
        kind = dice.integers(5)
        if kind == 0 and result:
            result[place % len(result)] ^= 1 << int(dice.integers(8))
        elif kind == 1:
            result[place : place + length] = dice.bytes(length)
        elif kind == 2:
            del result[place : place + length]
        elif kind == 3:
            result[place:place] = result[place : place + length]
        else:
            result[place:place] = dice.bytes(length)
    return bytes(result)


def damage_field(model: Message, dice: np.random.Generator) -> None:
    """Change one field somewhere in the message to something odd of the same kind."""
    messages = list(_messages(model))
    words = sorted({word for each in messages for word in _words(each)})
    message = messages[int(dice.integers(len(messages)))]
    fields = message.ListFields()
    if not fields:
        return
    field, content = fields[int(dice.integers(len(fields)))]
    if field.is_repeated:
        _damage_items(message, field, dice, words)
    elif field.type == field.TYPE_MESSAGE:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _odd(field, content, dice, words))


def _damage_items(
    message: Message, field: FieldDescriptor, dice: np.random.Generator, words: Sequence[str]
) -> None:
    items = getattr(message, field.name)
    place = int(dice.integers(len(items)))
    kind = dice.integers(4)
    if kind == 0:
        del items[place]
    elif kind == 1 and field.type == field.TYPE_MESSAGE:
        items.append(items[place])
    elif kind == 1:
        items.extend([items[place]] * int(dice.integers(1, 20)))
    elif kind == 2 and len(items) > 1:
        kept = list(items)
        dice.shuffle(kept)
        copies = [_copied(item) for item in kept]
        del items[:]
        items.extend(copies)
    elif field.type != field.TYPE_MESSAGE:
        items[place] = _odd(field, items[place], dice, words)


def _copied(item: Any) -> Any:
    if not isinstance(item, Message):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _odd(field: FieldDescriptor, content: Any, dice: np.random.Generator, words: Any) -> Any:
    """A value that a field of this kind could have, and seldom has."""
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return FLOATS[int(dice.integers(len(FLOATS)))]
    if field.type == field.TYPE_STRING:
        choices = [*words, "", "\0", "a" * 5000, content + "x"]
        return choices[int(dice.integers(len(choices)))]
    if field.type == field.TYPE_BYTES:
        return damage_bytes(content, dice)
    if field.type == field.TYPE_ENUM:
        numbers = [each.number for each in field.enum_type.values]
        return numbers[int(dice.integers(len(numbers)))]
    number = INTEGERS[int(dice.integers(len(INTEGERS)))]
    if field.type == field.TYPE_UINT64:
        return abs(number)
    if field.type == field.TYPE_INT32:
        return max(-(2**31), min(number, 2**31 - 1))
    return number


def _messages(message: Message) -> Iterator[Message]:
    """The message and those inside it."""
    yield message
    for field, content in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in content if field.is_repeated else [content]:
                yield from _messages(item)


def _words(message: Message) -> Iterator[str]:
    for field, content in message.ListFields():
        if field.type == field.TYPE_STRING:
            yield from content if field.is_repeated else [content]


# Running.


class _TooSlow(BaseException):
    """The alarm of one mutation."""


def attempt(number: int, run: bool = False) -> Finding:
    """Import one mutation, and interpret it if asked to; what came of it."""
    content = mutated(number)
    signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        graph = from_onnx(content)
        verify(graph)
        if run:
            _interpret(graph)
        return Finding(number, "graph")
    except MonographError as error:
        too_long = len(str(error)) > 5000
        kind = type(error).__name__
        return Finding(number, f"!{kind} of {len(str(error))} characters" if too_long else kind)
    except _TooSlow:
        return Finding(number, "!too slow")
    except BaseException as error:
        return Finding(number, f"!{type(error).__name__}", str(error)[:300])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interpret(graph: Graph) -> None:
    """Run a graph on ones; taking long, or much memory, is the user's business."""
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    inputs = []
    for value in graph.inputs:
        if not isinstance(value.type, TensorType):
            return
        shape = tuple(dim if isinstance(dim, int) else 2 for dim in value.type.shape)
        if np.prod(shape, dtype=float) > 1e6:
            return
        inputs.append(np.ones(shape, value.type.dtype.numpy))
    try:
        interpret(graph, inputs)
    except (_TooSlow, MemoryError):
        return


def _alarm(signal_number: int, frame: FrameType | None) -> None:
    raise _TooSlow


def fuzz(numbers: Sequence[int], run: bool = False) -> Iterator[Finding]:
    """What comes of every mutation, in child processes with little memory."""
    converters()
    pending = list(numbers)
    while pending:
        batch = pending[:BATCH]
        done = 0
        for finding in _batch(batch, run):
            yield finding
            done += 1
        if done < len(batch):  # the child died over this one
            yield Finding(batch[done], "!crash")
            done += 1
        pending = pending[done:]


def _batch(numbers: Sequence[int], run: bool) -> Iterator[Finding]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        limit(seconds=int(SECONDS) * len(numbers))
        for number in numbers:
            finding = attempt(number, run)
            line = json.dumps([finding.number, finding.kind, finding.detail]) + "\n"
            os.write(writing, line.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            yield Finding(*json.loads(line))
    os.waitpid(child, 0)


_SEEDS = seeds()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print what came of it, and say by the exit code whether there are faults."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.frontends.onnx.hostile.fuzz", description=__doc__
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument(
        "--only", type=int, help="one mutation, in this process, with its traceback"
    )
    parser.add_argument("--run", action="store_true", help="interpret what can be imported")
    options = parser.parse_args(arguments)
    if options.only is not None:
        graph = from_onnx(mutated(options.only))
        verify(graph)
        if options.run:
            _interpret(graph)
        print(graph)
        return 0
    start = time.perf_counter()
    numbers = range(options.start, options.start + options.count)
    findings = list(fuzz(numbers, options.run))
    for kind, count in Counter(finding.kind for finding in findings).most_common():
        print(f"{count:6}  {kind}")
    names = list(_SEEDS)
    for finding in findings:
        if finding.is_fault:
            seed = names[finding.number % len(names)]
            print(f"{finding.number} ({seed}): {finding.kind[1:]}: {finding.detail}")
    print(f"{len(findings)} mutations in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 1 if any(finding.is_fault for finding in findings) else 0


if __name__ == "__main__":
    raise SystemExit(main())

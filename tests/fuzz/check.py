"""One program, judged: compiled and called through its route, and compared."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from monograph import errors
from tests.fuzz.definitions import Definitions
from tests.fuzz.draw import draw_program
from tests.fuzz.oracle import Answers, judge, noise, rounding_by_use, same_bits
from tests.fuzz.programs import Model, Program, Watch
from tests.fuzz.routes import (
    Mode,
    as_module,
    compiled,
    draw_mode,
    dynamic_shapes,
    exported_onnx,
    onnx_dtype,
    other_sizes,
    results_and_gradients,
    run_onnx_elsewhere,
)

Compile = Callable[..., Model]

REFUSALS = (errors.UnsupportedError, errors.DifferentiationError)
"""Errors that say what is not supported; any other one is a fault: torch runs the program."""


@dataclass(frozen=True)
class Case:
    """A program, how it is run, and the ``MONOGRAPH_*`` settings of the process that runs it."""

    program: Program
    mode: Mode
    settings: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A form that ``from_json`` reads."""
        return {
            "program": self.program.to_json(),
            "mode": self.mode.to_json(),
            "settings": [list(each) for each in self.settings],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Case:
        """What ``to_json`` wrote."""
        return Case(
            Program.from_json(data["program"]),
            Mode.from_json(data["mode"]),
            tuple((name, value) for name, value in data["settings"]),
        )


@dataclass(frozen=True)
class Choices:
    """What cases are drawn from; None leaves it to the draw."""

    route: str | None = None
    dtype: str | None = None
    vector_bytes: tuple[str, ...] = ("", "16", "32", "64")
    fences: tuple[str, ...] = ("", "", "begin", "end")


ANY = Choices()


def draw_case(seed: int, choices: Choices = ANY) -> Case:
    """The case of a seed: the same one whenever it is drawn."""
    random = Random(seed)
    program = draw_program(random, choices.dtype)
    mode = draw_mode(random, program, choices.route)
    drawn = {
        "MONOGRAPH_VECTOR_BYTES": random.choice(choices.vector_bytes),
        "MONOGRAPH_VECTOR_REGISTERS": random.choice(("", "16", "32")),
        "MONOGRAPH_FENCES": random.choice(choices.fences),
    }
    if not drawn["MONOGRAPH_VECTOR_BYTES"]:
        del drawn["MONOGRAPH_VECTOR_REGISTERS"]
    return Case(program, mode, tuple((name, value) for name, value in drawn.items() if value))


@dataclass(frozen=True)
class Verdict:
    """What became of a case.

    ``status`` is ``right``, ``refused`` (an error that says what is not supported), ``invalid``
    (torch itself does not run or export the program), ``torch`` (torch's own answer is as wrong) or
    one of the findings: ``mismatch``, ``threads`` (other bits with other threads), ``unstable``
    (another call gives other bits), ``error``, ``crash``, ``timeout``.
    """

    status: str
    message: str = ""
    output: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether it is a fault of the compiler."""
        return self.status not in ("right", "refused", "invalid", "torch")

    def to_json(self) -> dict[str, str]:
        """A form to write down."""
        return asdict(self)


class _Reference:
    """What is known of a program's results at certain sizes, computed as far as it is needed."""

    def __init__(self, case: Case, sizes: Mapping[int, int]) -> None:
        self.program, self.mode = case.program, case.mode
        self.arguments = self.program.arguments(sizes)
        self.dtypes: dict[str, torch.dtype] = {}
        self.eager = self._run(self._record)
        with _wide_defaults():
            self.wide = self._run(None, wide=True)
        self._noisy: list[list[Tensor]] = []
        self._defined: list[Tensor] | None = None
        self._single: list[Tensor] | None = None

    def _record(self, name: str, value: Tensor) -> Tensor:
        self.dtypes[name] = value.dtype
        return value

    def defined(self) -> list[Tensor]:
        """Results of what definitions say, in the program's own dtypes."""
        if self._defined is None:
            self._defined = self._run(None, exact=True)
        return self._defined

    def single(self) -> list[Tensor]:
        """Results in float32 instead of float64; none if the program insists on the latter."""
        if self._single is None:
            try:
                self._single = self._run(None, cast=narrowed)
            except RuntimeError:  # of two dtypes that should be one
                self._single = []
        return self._single

    def _run(
        self,
        watch: Watch | None,
        *,
        use: Watch | None = None,
        wide: bool = False,
        exact: bool = False,
        cast: Callable[[Tensor], Tensor] = Tensor.clone,
    ) -> list[Tensor]:
        cast = widened if wide else cast
        weights = {name: cast(each) for name, each in self.program.weights().items()}
        arguments = [cast(each.clone()) for each in self.arguments]
        model = self.program.build(weights, wide=wide, watch=watch, use=use)
        with Definitions() if wide or exact else nullcontext():
            return call(model, arguments, self.mode.gradients)

    def noisy(self, draws: int) -> list[list[Tensor]]:
        """Results of so many noisy runs."""
        with _wide_defaults():
            for seed in range(len(self._noisy), draws):
                watch = noise(self.dtypes, self._exact(), seed)
                use = rounding_by_use(self.dtypes, seed)
                self._noisy.append(self._run(watch, use=use, wide=True))
        return self._noisy[:draws]

    def _exact(self) -> set[str]:
        """The values whose zeros are no accident."""
        statements = {each.result for each in self.program.statements if each.keeps_zeros}
        return statements | {each.name for each in self.program.sources}

    def answers(self, number: int) -> Answers:
        """What is known of one result."""
        outputs = self.program.outputs
        exact = number < len(outputs) and all(
            each.keeps_zeros for each in self.program.upstream(outputs[number])
        )
        return Answers(
            self.eager[number],
            self.wide[number],
            lambda draws: [each[number] for each in self.noisy(draws)],
            exact,
            self.mode.level == "O3",
            lambda: [self.defined()[number]],
            number >= len(outputs),
            self.mode.route == "onnx",
            lambda: self.single()[number : number + 1],
        )

    def judge(self, got: Sequence[Tensor]) -> Verdict | None:
        """What is wrong with a program's results; None if nothing is."""
        if len(got) != len(self.eager):
            return Verdict("mismatch", f"{len(got)} results, not {len(self.eager)}")
        for number, result in enumerate(got):
            problem = judge(result, self.answers(number))
            if problem is not None:
                outputs = self.program.outputs
                name = (
                    outputs[number]
                    if number < len(outputs)
                    else f"gradient {number - len(outputs)}"
                )
                return Verdict("mismatch", f"{name}: {problem}", name)
        return None


def check(case: Case, compile_case: Compile = compiled) -> Verdict:
    """Compile, call and compare one case. ``compile_case`` may stand in for the compiler."""
    try:
        reference = _Reference(case, {})
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as problem:
        return Verdict("invalid", _first_line(problem))
    try:
        found = _compare(case, reference, compile_case)
    except Exception as problem:
        return _judge_error(case, problem)
    if found is not None and found.status == "mismatch":
        return _torch_alike(case, reference, found)
    return found or Verdict("right")


def _compare(case: Case, reference: _Reference, compile_case: Compile) -> Verdict | None:
    program, mode = case.program, case.mode
    model = compile_case(program, mode)
    arguments = [each.clone() if each.is_contiguous() else each for each in reference.arguments]
    before = [each.clone() for each in arguments]
    first = call(model, arguments, mode.gradients)
    kept = [each.clone() for each in first]
    found = reference.judge(first)
    if found is not None:
        return found
    again = call(model, arguments, mode.gradients)
    if not all(map(same_bits, kept, again)):
        return Verdict("unstable", "a second call gives other bits")
    if not all(map(same_bits, kept, first)):
        return Verdict("unstable", "a second call changes the results of the first")
    if not all(map(same_bits, before, arguments)):
        return Verdict("unstable", "a call changes its arguments")
    for sizes in other_sizes(mode) if mode.symbolic else ():
        found = _compare_sizes(case, model, sizes)
        if found is not None:
            return found
    del model, again, first
    if mode.threads > 1:
        alone = call(compile_case(program, mode, threads=1), arguments, mode.gradients)
        if not all(map(same_bits, kept, alone)):
            return Verdict("threads", f"{mode.threads} threads and one give other bits")
    return None


def _compare_sizes(case: Case, model: Model, sizes: Mapping[int, int]) -> Verdict | None:
    """Compare at other sizes, where torch runs the program at all."""
    try:
        reference = _Reference(case, sizes)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return None
    found = reference.judge(call(model, reference.arguments, case.mode.gradients))
    if found is None:
        return None
    return Verdict(found.status, f"with sizes {dict(sizes)}: {found.message}", found.output)


def call(model: Model, arguments: Sequence[Tensor], gradients: bool) -> list[Tensor]:
    """The results of a call, and the gradients if they are wanted."""
    if gradients:
        return results_and_gradients(model, arguments)
    with torch.no_grad():
        results = model(*arguments)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def widened(value: Tensor) -> Tensor:
    """A tensor in float64 or complex128, if it holds floats."""
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def narrowed(value: Tensor) -> Tensor:
    """A tensor in float32 or complex64, if it holds floats of float64."""
    if value.dtype is torch.complex128:
        return value.to(torch.complex64)
    return value.float() if value.dtype is torch.float64 else value


@contextmanager
def _wide_defaults() -> Iterator[None]:
    """What torch makes of integers (a mean, a quotient) is float64 as well."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _torch_alike(case: Case, reference: _Reference, found: Verdict) -> Verdict:
    """Whether torch, by the same road but without us, is as wrong; then the fault is torch's."""
    try:
        theirs = _theirs(case, reference)
    except Exception as problem:
        # ONNX Runtime finds that the types of what torch exported do not fit. Else torch does not
        # get as far as we do, and says nothing about our answer.
        invalid = type(problem).__name__ == "InvalidGraph" or _exports_other_dtypes(case, reference)
        return Verdict("torch", _first_line(problem)) if invalid else found
    if reference.judge(theirs) is None:
        return found
    return Verdict("torch", found.message, found.output)


def _exports_other_dtypes(case: Case, reference: _Reference) -> bool:
    """Whether torch's exporter declares results of other dtypes than eager gives (``prod``)."""
    if case.mode.route != "onnx":
        return False
    declared = exported_onnx(case.program).graph.output
    given = [onnx_dtype(each.dtype) for each in reference.eager]
    return [each.type.tensor_type.elem_type for each in declared] != given


def _theirs(case: Case, reference: _Reference) -> list[Tensor]:
    program, mode = case.program, case.mode
    if mode.route == "onnx":
        return list(run_onnx_elsewhere(program, reference.arguments))
    model = program.build(program.weights())
    if mode.route == "torch.compile":
        model = torch.compile(
            model, backend="aot_eager", dynamic=bool(mode.symbolic), fullgraph=True
        )
        return call(model, reference.arguments, mode.gradients)
    return call(_exported(program, mode), reference.arguments, False)


def _exported(program: Program, mode: Mode) -> Model:
    built = program.build(program.weights())
    module, shapes = as_module(built), dynamic_shapes(program, mode)
    if shapes is not None and module is not built:
        shapes = (shapes,)  # what wraps a function takes its arguments as one tuple
    arguments = tuple(program.arguments())
    exported = torch.export.export(module, arguments, dynamic_shapes=shapes, strict=False)
    return exported.module()


def _judge_error(case: Case, problem: BaseException) -> Verdict:
    """Whether an error is a clean refusal, torch's own, or a finding."""
    chain = list(_causes(problem))
    ours = [each for each in chain if isinstance(each, errors.MonographError)]
    root = ours[0] if ours else chain[-1]
    text = f"{type(root).__name__}: {_first_line(root)}"
    if _torch_refuses(case):
        return Verdict("invalid", text)
    if isinstance(root, REFUSALS):
        return Verdict("refused", text)
    misrecorded = _misrecorded_shape(case)
    if misrecorded is not None:
        return Verdict("torch", f"torch records another shape than {misrecorded} gives")
    return Verdict("error", f"{text} ({_place(root)})")


class _Shapes(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs an exported program and notes the first op whose result is not as it was recorded."""

    found: str | None = None

    def run_node(self, node: torch.fx.Node) -> Any:
        result, recorded = super().run_node(node), node.meta.get("val")
        if isinstance(result, Tensor) and isinstance(recorded, Tensor) and self.found is None:
            sizes = [None if isinstance(size, torch.SymInt) else size for size in recorded.shape]
            same = len(sizes) == result.dim() and all(
                size in (None, own) for size, own in zip(sizes, result.shape, strict=True)
            )
            self.found = None if same else str(node.target)
        return result


def _misrecorded_shape(case: Case) -> str | None:
    """The op of which torch records another shape than it has (a norm along axes of one, in 2.11).

    What is made of it has another shape, too, in the program that we are given.
    """
    try:
        shapes = _Shapes(_exported(case.program, case.mode))
        shapes.run(*case.program.arguments())
    except Exception:  # torch gets no further: it does not explain our error
        return None
    return shapes.found


def _torch_refuses(case: Case) -> bool:
    """Whether torch alone, by the same road, raises as well."""
    try:
        _theirs(case, _Reference(case, {}))
    except Exception:
        return True
    return False


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """An error, and those that it says it comes from; torch keeps what a backend raised."""
    current: BaseException | None = problem
    seen: set[int] = set()
    while current is not None and id(current) not in seen:  # torch may make a circle of them
        seen.add(id(current))
        yield current
        current = getattr(current, "inner_exception", None) or current.__cause__


def _first_line(problem: BaseException) -> str:
    lines = itertools.chain(str(problem).splitlines(), [""])
    return next(lines)[:200]


def _place(problem: BaseException) -> str:
    """The innermost line of the package that an error came through."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [each for each in frames if "/monograph/" in each.filename]
    if not frames:
        return "nowhere"
    last = (ours or list(frames))[-1]
    return f"{last.filename.split('/monograph/')[-1]}:{last.lineno} {last.name}"

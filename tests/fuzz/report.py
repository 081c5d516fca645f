"""What a run of the fuzzer says: a program to run for each kind of finding, and one table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fuzz.check import Case, Verdict
from tests.fuzz.routes import Mode
from tests.fuzz.workers import Outcome

COLUMNS = ("right", "mismatch", "crash", "error", "threads", "unstable", "timeout")
OTHERS = ("refused", "torch", "invalid")


@dataclass
class Finding:
    """One fault: the smallest case that shows it, and the seeds that came upon it."""

    case: Case
    verdict: Verdict
    seeds: list[int] = field(default_factory=list)


def bucket(case: Case, verdict: Verdict) -> str:
    """What findings of one fault have in common, once they are small.

    An error is known by its text and place, numbers aside; a wrong answer or a crash by the ops
    that are left of the program, its dtypes and whether it takes a certain vector or route.
    """
    if verdict.status == "error":
        return f"error {re.sub(r'[0-9]+', 'N', verdict.message)}"
    ops = " ".join(each.op() for each in case.program.statements)
    dtypes = " ".join(sorted({each.dtype for each in case.program.sources}))
    mode = "gradient" if case.mode.gradients else case.mode.route
    return f"{verdict.status} {ops} | {dtypes} | {mode} | {dict(case.settings)}"


def rough_bucket(case: Case, verdict: Verdict) -> str:
    """What findings have in common before they are made small."""
    if verdict.status in ("error", "crash"):
        return f"{verdict.status} {re.sub(r'[0-9]+', 'N', verdict.message)} {main_dtype(case)}"
    return f"{verdict.status} {main_dtype(case)} {_route(case)} {width(case)}"


def as_python(case: Case, verdict: Verdict, seeds: Sequence[int] = ()) -> str:
    """A program that shows a finding, to be run from the root of the repository."""
    program, mode = case.program, case.mode
    settings = " ".join(f"{name}={value}" for name, value in case.settings)
    head = [f"# {verdict.status}: {verdict.message}"]
    if seeds:
        head.append(f"# from seed {', '.join(map(str, seeds[:8]))}")
    if settings:
        head.append(f"# run with {settings}")
    head += ["import torch", "from torch.nn import functional as F", "", "import monograph"]
    made = [f"{each.name} = {each.expression()}" for each in program.sources]
    if any("make(" in line for line in made):
        head.append("from tests.fuzz.values import Source, make")
    names = ", ".join(each.name for each in program.inputs)
    lines = [*head, "", *made, program.source(), *_calls(mode, names, _shapes(case))]
    return "\n".join(lines)


def _shapes(case: Case) -> str:
    dims = [
        "{"
        + ", ".join(
            f"{axis}: torch.export.Dim('n{size}', min=2, max=4096)"
            for axis, size in enumerate(each.shape)
            if size in case.mode.symbolic
        )
        + "}"
        for each in case.program.inputs
    ]
    return f", dynamic_shapes=({', '.join(dims)},)" if case.mode.symbolic else ""


def _calls(mode: Mode, names: str, shapes: str) -> list[str]:
    options = f"level={mode.level!r}, threads={mode.threads}"
    if mode.route == "torch.compile":
        text = (
            "compiled = torch.compile(model, backend='monograph', "
            f"options={{'level': {mode.level!r}, 'threads': {mode.threads}}}, "
            f"dynamic={bool(mode.symbolic)})"
        )
        if mode.gradients:
            return [
                "from tests.fuzz.routes import results_and_gradients",
                text,
                f"print(results_and_gradients(compiled, [{names}]))",
                f"print(results_and_gradients(model, [{names}]))",
            ]
        return [text, f"print(compiled({names}))", f"print(model({names}))"]
    if mode.route == "onnx":
        return [
            f"# through torch.onnx.export(…, dynamo=True), {options}",
            f"print(model({names}))",
        ]
    lines = [f"compiled = monograph.compile(model, {names}, {options}, budget=0.0{shapes})"]
    if mode.route == "mono":
        lines += [
            "compiled.save('/tmp/program.mono')",
            "compiled = monograph.load('/tmp/program.mono')",
        ]
    return [*lines, f"print(compiled({names}))", f"print(model({names}))"]


def main_dtype(case: Case) -> str:
    """The dtype that most of a program's inputs have."""
    dtypes = Counter(each.dtype for each in case.program.sources if each.contents != "index")
    return dtypes.most_common(1)[0][0] if dtypes else "int64"


def width(case: Case) -> str:
    """The vector width that a case was compiled for."""
    return dict(case.settings).get("MONOGRAPH_VECTOR_BYTES", "own")


def registers(case: Case) -> str:
    """How many vector registers a case was compiled for."""
    return dict(case.settings).get("MONOGRAPH_VECTOR_REGISTERS", "own")


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by dtype, by vector width, by registers, by route, then of all."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        keys = [
            f"dtype {main_dtype(outcome.case)}",
            f"vector {width(outcome.case)}",
            f"registers {registers(outcome.case)}",
            f"route {_route(outcome.case)}",
            "total",
        ]
        for key in keys:
            rows[key][outcome.verdict.status] += 1
    columns = ("programs", *COLUMNS, *OTHERS)
    lines = [f"{'':22}" + "".join(f"{name:>10}" for name in columns)]
    for key in sorted(rows, key=lambda key: (key == "total", key)):
        counts = rows[key]
        cells = [counts.total(), *(counts[name] for name in (*COLUMNS, *OTHERS))]
        lines.append(f"{key:22}" + "".join(f"{cell or '·':>10}" for cell in cells))
    return "\n".join(lines)


def _route(case: Case) -> str:
    return "gradients" if case.mode.gradients else case.mode.route


def refusals(outcomes: Sequence[Outcome], status: str) -> str:
    """What was refused, or invalid, by message, the most frequent first."""
    texts = (
        re.sub(r"[0-9]+", "N", each.verdict.message)[:110]
        for each in outcomes
        if each.verdict.status == status
    )
    counted = Counter(texts).most_common(12)
    return "\n".join(f"{count:6}  {text}" for text, count in counted)

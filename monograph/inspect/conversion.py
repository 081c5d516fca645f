"""Converts a model to another format, and compares it with the original before writing.

The graph is exported, what was exported runs in its own runtime on sampled inputs, and its answers
are compared with the framework's (or with the interpreter's, for a model that has none). A wrong
answer is never written.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError, MonographError
from monograph.exporters.formats import FORMATS, Format, Run, Written
from monograph.inspect.reference import Reference
from monograph.inspect.samples import Sample, draw_samples
from monograph.inspect.subject import Subject
from monograph.inspect.validate import worst_word
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.specialize import specialize_sizes
from monograph.ir.text.files import load_graph, save_graph
from monograph.ir.types import Array, TensorType
from monograph.progress import announce
from monograph.runtime.atomic import replacing

MOST_SAMPLES = 3
MOST_OF_REASON = 160
"""Characters that are shown of why a runtime refuses a sample."""
ORDINARY = ("given", "normal", "wide")
"""Kinds of sample that every runtime must agree on; what they make of NaN is their own."""


@dataclass(frozen=True)
class Conversion:
    """What was made, and how its answers compare: ``word`` is None if nothing could run it."""

    title: str
    files: Mapping[str, bytes]
    word: str | None
    compared_with: str
    difference: float = 0.0
    samples: int = 0
    remark: str = ""
    refusals: tuple[str, ...] = ()
    """The samples that a runtime refused, with why: nothing was compared on them."""

    @property
    def is_wrong(self) -> bool:
        """Whether an answer is wrong."""
        return self.word == "wrong"

    @property
    def is_unchecked(self) -> bool:
        """Whether there is a runtime, which has refused every sample, or the model itself has."""
        return self.word is None and bool(self.refusals)

    def __str__(self) -> str:
        if self.word is None and not self.remark:
            why = "no sample can be drawn"
            if self.refusals:
                why = f"every sample is refused: {self.refusals[0]}"
            return f"{self.title}: not compared, because {why}"
        if self.word is None:
            return f"{self.title}: not run, because {self.remark}"
        count = f"{self.samples} sample{'' if self.samples == 1 else 's'}"
        text = f"{self.title}: {self.word} on {count}, beside {self.compared_with}"
        if self.word != "exact":
            text += f" (difference {self.difference:.1e})"
        if self.remark:
            text += f": {self.remark}"
        return f"{text}; not run on {'; '.join(self.refusals)}" if self.refusals else text


def _native(graph: Graph) -> Written:
    """Our own text, read back to be run."""
    with tempfile.TemporaryDirectory() as folder:
        path = save_graph(graph, Path(folder) / "model.ir")
        files = {".ir": path.read_bytes()}
        weights = path.with_suffix(".safetensors")
        if weights.exists():
            files[".safetensors"] = weights.read_bytes()
            load_graph(path)  # which checks the digests

        def run(arrays: Sequence[Array]) -> list[Array]:
            with tempfile.TemporaryDirectory() as again:
                for suffix, content in files.items():
                    (Path(again) / f"model{suffix}").write_bytes(content)
                return interpret(load_graph(Path(again) / "model.ir"), arrays)

    return Written(files, run)


def _svg(graph: Graph) -> Written:
    return Written({".svg": graph.svg().encode()}, None, "it is a drawing")


WRITABLE: Mapping[str, Format] = {
    **FORMATS,
    "svg": Format("svg", "SVG", ".svg", _svg),
    "monograph": Format("monograph", "Monograph", ".ir", _native),
}
"""Every format that ``convert`` writes."""


def format_for(output: Path, name: str | None = None) -> Format:
    """The format of that name, or else the one that the output's suffix tells."""
    if name is not None:
        if name not in WRITABLE:
            raise InputError(f"there is no format {name!r}", expected=", ".join(WRITABLE))
        return WRITABLE[name]
    for each in WRITABLE.values():
        if each.suffix == output.suffix:
            return each
    known = ", ".join(f"{each.suffix} ({each.title})" for each in WRITABLE.values())
    hint = "--to names the format"
    if output.suffix == ".mono":
        hint = "`monograph compile MODEL -o MODEL.mono` makes those"
    raise InputError(f"the name {str(output)!r} tells no format", expected=known, hint=hint)


def convert(
    subject: Subject, format_: Format, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> Conversion:
    """Export the model's graph, for these sizes of its symbols, and compare the answers."""
    graph = specialize_sizes(subject.graph, sizes) if sizes else subject.graph
    announce(f"writing {format_.title}")
    written = format_.export(graph)
    reason = written.not_run or _not_passable(graph, format_)
    if written.run is None or reason:
        return Conversion(format_.title, written.files, None, "", remark=reason)
    compared = _compare(written.run, format_, subject, graph, sizes or {}, seed)
    if not compared.samples and compared.is_framework_unfit:
        subject = replace(subject, framework=None, framework_name="the interpreter")
        again = _compare(written.run, format_, subject, graph, sizes or {}, seed)
        again.refusals += compared.refusals[:1]
        compared = again
    return Conversion(
        format_.title,
        written.files,
        worst_word(compared.words) if compared.words else None,
        subject.framework_name,
        max(compared.differences, default=0.0),
        compared.samples,
        compared.remarks[0] if compared.remarks else "",
        tuple(compared.refusals),
    )


@dataclass
class _Compared:
    """What the samples gave."""

    samples: int = 0
    words: list[str] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_framework_unfit: bool = False
    """Whether the framework refused inputs that the interpreter may take."""


def _compare(
    run: Run,
    format_: Format,
    subject: Subject,
    graph: Graph,
    sizes: Mapping[str, int],
    seed: int,
) -> _Compared:
    """Hold the answers against the reference's, on samples that both sides take.

    Runtimes refuse what they cannot do with exceptions of all kinds, for sizes of zero above all:
    such a sample says nothing about the numbers, and is named beside the verdict.
    """
    found = _Compared()
    for sample in _samples(subject, graph, sizes, seed):
        if found.samples == MOST_SAMPLES:
            break
        announce(f"comparing on {sample.name}")
        try:
            expected = _compute_expected(subject, graph, sample)
        except Exception as error:
            found.is_framework_unfit |= subject.framework is not None
            found.refusals.append(_refusal(sample, subject.framework_name, error))
            continue
        try:
            answers = run(sample.arrays)
        except Exception as error:
            found.refusals.append(_refusal(sample, f"the runtime of {format_.title}", error))
            continue
        found.samples += 1
        reference = Reference(graph, sample.arrays)
        for number, (got, other) in enumerate(zip(answers, expected, strict=True)):
            verdict = reference.judge(number, got, other)
            found.differences.append(verdict.difference)
            found.words.append(verdict.word)
            if verdict.word == "wrong":
                name = graph.outputs[number].name
                found.remarks.append(
                    f"%{name} on {sample.name}: {verdict.remark or 'other numbers'}"
                )
    return found


def _refusal(sample: Sample, who: str, error: Exception) -> str:
    """Who refused a sample and why, in a line."""
    text = error.message if isinstance(error, MonographError) else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return f"{sample.name} ({who}: {textwrap.shorten(line, MOST_OF_REASON, placeholder=' …')})"


def _samples(
    subject: Subject, graph: Graph, sizes: Mapping[str, int], seed: int
) -> Iterator[Sample]:
    """The ordinary ones; the caller's own inputs come first, where their sizes are meant."""
    given = subject.given if not sizes else ()
    drawn = draw_samples(graph, given, None, seed, subject.state)
    return (each for each in drawn if each.name.split()[0] in ORDINARY)


def _compute_expected(subject: Subject, graph: Graph, sample: Sample) -> list[Any]:
    if subject.framework is None:
        return interpret(graph, list(sample.arrays))
    answers = subject.framework(sample.arrays)
    return answers if len(answers) == len(graph.outputs) else interpret(graph, list(sample.arrays))


def _not_passable(graph: Graph, format_: Format) -> str:
    """Why Python cannot hand the inputs to the runtime, or take its results."""
    if format_.name != "onnx":
        return ""
    for value in (*graph.inputs, *graph.outputs):
        if not isinstance(value.type, TensorType):
            return f"ONNX Runtime's Python interface takes no {value.type}"
        if value.dtype.is_complex:
            return "complex numbers are pairs of numbers in ONNX"
        if value.dtype.numpy.kind == "V" or value.dtype.numpy.type.__module__ == "ml_dtypes":
            return f"ONNX Runtime's Python interface takes no {value.dtype}"
    return ""


def write_files(output: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write all files beside each other, the main one last; each appears whole or not at all."""
    paths: list[Path] = []
    for number, (suffix, content) in reversed(list(enumerate(files.items()))):
        path = output if number == 0 else output.with_suffix(suffix)
        try:
            with replacing(path, 0o644) as file:
                file.write(content)
        except OSError as problem:
            raise InputError(f"{path} cannot be written: {problem.strerror}") from problem
        paths.insert(0, path)
    return paths

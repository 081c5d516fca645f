"""Import every model of the zoo and compare it with eager: ``python -m tests.models.run``.

Each model is taken through torch.export, through an ONNX file, and through one training step
(gradients of every parameter, by our own differentiation). One table, one row a model; what failed
is listed beneath it, by cause. The exit code is 1 if anything is wrong.

    python -m tests.models.run -k bert,llama --via torch,onnx
    python -m tests.models.run --train --workers 2
    python -m tests.models.run --target cpu
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.models.check import WAYS, Result, check
from tests.models.model import Model
from tests.models.verdict import Word
from tests.models.zoo import find
from tests.targets.running import TARGETS

COLOURS = {
    Word.EXACT: "green",
    Word.MORE_ACCURATE: "green",
    Word.WITHIN_ROUNDING: "green",
    Word.WRONG: "red",
}


def run(
    models: Sequence[Model],
    ways: Sequence[str],
    workers: int = 1,
    cache: Path | None = None,
    target: str = "interpreter",
) -> Iterator[Result]:
    """Every model every way, in order, by so many processes."""
    tasks = [(model.name, way) for model in models for way in ways]
    if workers <= 1:
        for name, way in tasks:
            yield check_by_name(name, way, cache, target)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _quiet) as pool:
        names, chosen = zip(*tasks, strict=True)
        yield from pool.map(partial(check_by_name, cache=cache, target=target), names, chosen)


def check_by_name(
    name: str, way: str, cache: Path | None = None, target: str = "interpreter"
) -> Result:
    """One model one way; the model by its name, which processes can send to each other."""
    (model,) = (each for each in find() if each.name == name)
    return check(model, way, cache, target)


def _quiet() -> None:
    """One thread for each process, and no notices from torch's exporters."""
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)


def table(models: Sequence[Model], results: Iterable[Result], ways: Sequence[str]) -> Table:
    """One row a model: how right it is each way, its nodes and the seconds to import it."""
    found = {(result.model, result.way): result for result in results}
    made = Table(title="Whole models against eager", title_justify="left")
    made.add_column("model")
    made.add_column("family")
    for way in ways:
        made.add_column(way)
        made.add_column("nodes", justify="right")
        made.add_column("export s", justify="right")
        made.add_column("import s", justify="right")
        made.add_column("run s", justify="right")
    for model in models:
        cells = [cell for way in ways for cell in _cells(found[model.name, way])]
        made.add_row(model.name, model.family, *cells)
    return made


def _cells(result: Result) -> list[str]:
    seconds = [
        f"{result.seconds[step]:.2f}" if step in result.seconds else ""
        for step in ("export", "import", "run")
    ]
    return [_word(result), str(result.nodes or ""), *seconds]


def _word(result: Result) -> str:
    if result.excuse:
        return "[yellow]not exported[/yellow]"
    if result.verdict is None:
        step = result.failure.split(":", 1)[0]
        return f"[red]failed in {step}[/red]"
    verdict = result.verdict
    colour = COLOURS[verdict.word]
    return f"[{colour}]{verdict.word}[/{colour}] {verdict.error:.1e}/{verdict.eager_error:.1e}"


def summary(results: Sequence[Result], ways: Sequence[str]) -> Iterator[str]:
    """How many are right each way, in words."""
    for way in ways:
        chosen = [result for result in results if result.way == way and not result.excuse]
        counts: dict[str, int] = defaultdict(int)
        for result in chosen:
            counts["failed" if result.verdict is None else str(result.verdict.word)] += 1
        right = sum(result.is_right for result in chosen)
        parts = ", ".join(f"{count} {word}" for word, count in counts.items())
        yield f"{way}: {right} of {len(chosen)} right ({parts})"


def interpreted(results: Iterable[Result]) -> Iterator[str]:
    """Which models ran a node in the interpreter though they were compiled, and of which ops."""
    for result in results:
        if result.runner.interpreted:
            ops = ", ".join(sorted(set(result.runner.interpreted)))
            yield f"{result.model} ({result.way}): in the interpreter ran {ops}"


def causes(results: Iterable[Result]) -> dict[str, list[str]]:
    """What went wrong, by cause: the message without its numbers and names."""
    groups: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.excuse:
            groups[f"not exported: {result.excuse}"].append(f"{result.model} ({result.way})")
        elif result.missing:
            for op in result.missing:
                groups[f"no converter: {op}"].append(f"{result.model} ({result.way})")
        elif result.verdict is None:
            groups[_cause(result.failure)].append(f"{result.model} ({result.way})")
        elif result.verdict.word is Word.WRONG:
            groups[f"wrong: {result.verdict.reason}"].append(f"{result.model} ({result.way})")
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def _cause(failure: str) -> str:
    """A failure's text without what differs from model to model."""
    kept = "\n".join(failure.splitlines()[:4])
    return re.sub(r"%[\w.]+|_\d+\b", "%…", kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, print it, and say by the exit code whether all is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.run", description=__doc__)
    parser.add_argument("-k", default="", help="only models whose name contains one of these words")
    parser.add_argument("--via", default="torch,onnx", help="torch, onnx or both")
    parser.add_argument("--train", action="store_true", help="a training step as well")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="a folder to keep exported ONNX files in")
    parser.add_argument("--target", choices=TARGETS, default="interpreter")
    options = parser.parse_args(arguments)
    ways = [way for way in options.via.split(",") if way] + ["train"] * options.train
    unknown = set(ways) - set(WAYS)
    if unknown:
        parser.error(f"no such way: {', '.join(unknown)}; there are torch and onnx")
    models = find(options.k)
    _quiet()
    progress = Console(stderr=True)
    results = []
    for result in run(models, ways, options.workers, options.cache, options.target):
        results.append(result)
        progress.print(f"{result.model} {result.way}: {_word(result)}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(models, results, ways))
    for line in summary(results, ways):
        console.print(line)
    for line in interpreted(results):
        console.print(line, highlight=False)
    for cause, names in causes(results).items():
        console.print(f"\n{len(names)} × {cause}", markup=False, highlight=False)
        console.print(f"    {', '.join(names)}", markup=False, highlight=False)
    return 0 if all(result.is_right for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How long an import takes: ``python -m benchmarks.import_speed``.

BERT-base (12 layers, 768 channels, random weights) as torch.export and torch's ONNX exporter give
it. Only our own part is timed: from the ``ExportedProgram``, and from the ONNX file on disk, to a
graph; the exporter's own seconds stand beside it. The quickest of some repeats must take less than
``MAX_SECONDS`` of processor time (the work has one thread, and what else the machine does should
not count); the exit code is 1 if one does not.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from monograph.frontends.onnx import from_onnx
from monograph.frontends.torch import from_torch
from monograph.ir.graph import Graph

MAX_SECONDS = 1.0
TOKENS = 128


@dataclass(frozen=True)
class Row:
    """One road into a graph: the exporter's seconds, ours at every repeat, and the graph's size.

    ``seconds`` are those of a clock on the wall, ``work`` those of the processor.
    """

    road: str
    exporter: float
    seconds: tuple[float, ...]
    work: tuple[float, ...]
    nodes: int


class Encoder(torch.nn.Module):
    """BERT from tokens to its last hidden states and pooled output, as tensors."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(num_hidden_layers=layers)
        self.model = BertModel(config)  # type: ignore[no-untyped-call]

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The model's outputs as a tuple."""
        output = self.model(input_ids=tokens, attention_mask=mask)
        return output.last_hidden_state, output.pooler_output


def measure(layers: int, repeats: int) -> list[Row]:
    """Import BERT by both roads, some times each; the first time counts like any other."""
    torch.manual_seed(0)
    module = Encoder(layers).eval()
    tokens = torch.randint(0, 30000, (1, TOKENS))
    inputs = (tokens, torch.ones_like(tokens))
    start = time.perf_counter()
    program = torch.export.export(module, inputs, strict=False)
    exporting = time.perf_counter() - start
    rows = [_row("torch.export", exporting, lambda: from_torch(program), repeats)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bert.onnx"
        start = time.perf_counter()
        _export_onnx(module, inputs, path)
        exporting = time.perf_counter() - start
        for weights in ("in the file", "beside it"):
            if weights == "beside it":
                _move_weights_out(path)
            row = _row(f"ONNX, weights {weights}", exporting, lambda: from_onnx(path), repeats)
            rows.append(row)
    return rows


def _row(road: str, exporter: float, call: Callable[[], Graph], repeats: int) -> Row:
    seconds, work = [], []
    for _ in range(repeats):
        gc.collect()
        start, begun = time.perf_counter(), time.process_time()
        graph = call()
        seconds.append(time.perf_counter() - start)
        work.append(time.process_time() - begun)
        nodes = len(graph)
        del graph
    return Row(road, exporter, tuple(seconds), tuple(work), nodes)


def _export_onnx(module: torch.nn.Module, inputs: tuple[Any, ...], path: Path) -> None:
    """An ONNX file with its weights in it, from torch's exporter."""
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    assert program is not None
    program.save(path, external_data=False)


def _move_weights_out(path: Path) -> None:
    """Save the model again, its weights in another file."""
    import onnx

    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, location="bert.bin")


def table(rows: Sequence[Row]) -> Table:
    """The figures as a table."""
    made = Table(title="Importing BERT-base", title_justify="left")
    for column in ("road", "nodes", "exporter s", "first s", "best s", "processor s", "limit s"):
        made.add_column(column, justify="left" if column == "road" else "right")
    for row in rows:
        cells = (row.exporter, row.seconds[0], min(row.seconds), min(row.work), MAX_SECONDS)
        made.add_row(row.road, str(row.nodes), *(f"{each:.2f}" for each in cells))
    return made


def failures(rows: Sequence[Row]) -> list[str]:
    """What is too slow, in words."""
    return [
        f"{row.road} takes {min(row.work):.2f} s, more than {MAX_SECONDS}"
        for row in rows
        if min(row.work) > MAX_SECONDS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_speed", description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = measure(options.layers, options.repeats)
    console = Console()
    console.print(table(rows))
    problems = failures(rows)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Subcommands run in this process, on a terminal of 80 columns, with models in files."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from monograph.cli.main import app

PERCEPTRON = """\
import numpy as np

from monograph import functional as F

generator = np.random.default_rng(0)
WEIGHTS = [generator.normal(size=shape).astype("f4") / 4 for shape in [(32, 8), (32,), (4, 32)]]


def perceptron(x):
    first, bias, second = (
        x.graph.add_weight(name, array) for name, array in zip("abc", WEIGHTS, strict=True)
    )
    return F.softmax(F.linear(F.gelu(F.linear(x, first, bias)), second), axis=-1)


example_inputs = ("f32[batch, 8]",)
"""

GRAPH = """\
graph @main(%x: f32[4, 4]) -> (f32[4, 4]) {
  %e = exp(%x) : f32[4, 4]
  %y = matmul(%e, %x) : f32[4, 4]
  %z = relu(%y) : f32[4, 4]
  return %z
}
"""


def invoke(*arguments: str) -> Result:
    """Run a subcommand; an error that we foresaw is in ``exception``."""
    environment = {"COLUMNS": "80", "NO_COLOR": "1", "MONOGRAPH_CACHE": "0"}
    return CliRunner().invoke(app, arguments, env=environment)


def output_of(*arguments: str) -> str:
    """What a subcommand prints; it must succeed."""
    done = invoke(*arguments)
    assert done.exit_code == 0, done.exception or done.output
    return done.stdout


def write_perceptron(folder: Path) -> str:
    """A function of Monograph's own ops, as the command line names it."""
    path = folder / "perceptron.py"
    path.write_text(PERCEPTRON)
    return f"{path}:perceptron"


def write_graph(folder: Path) -> str:
    """A small graph in a file."""
    path = folder / "graph.ir"
    path.write_text(GRAPH)
    return str(path)

"""The option ``--report FILE.html`` of commands that find something out about a model."""

from __future__ import annotations

import sys
from pathlib import Path

from monograph.compiler import Options
from monograph.inspect.inputs import parse_sizes
from monograph.inspect.models import Model
from monograph.report.findings import Finding
from monograph.report.models import write_page
from monograph.report.write import html_path


def check_path(path: Path | None) -> Path | None:
    """A path that a page can be written to: said before minutes of work, not after them."""
    return None if path is None else html_path(path)


def write(
    path: Path | None,
    model: Model,
    options: Options,
    sizes: list[str] | None,
    finding: Finding | None = None,
    *,
    measures: bool = True,
) -> None:
    """Write the page with what was found, if one is wanted, and say where it is."""
    if path is None:
        return
    findings = [] if finding is None else [finding]
    chosen = parse_sizes(sizes or ())
    write_page(path, model, options, sizes=chosen, measures=measures, findings=findings)
    print(f"wrote {path}", file=sys.stderr)

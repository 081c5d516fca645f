"""Writing a report: ``compiled.report("r.html")`` and ``monograph report``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monograph.errors import InputError
from monograph.inspect.output_files import check_writable
from monograph.report.data import executable_behind, record, report_data
from monograph.report.findings import Finding, profile_in
from monograph.report.measured import Measured, read_profile
from monograph.report.page import page_html

UNCALLED = Measured(
    "compiled.report does not call the model: give it findings=[compiled.profile(x)], or use "
    "`monograph report`"
)


def report_html(
    model: Any,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    findings: Sequence[Finding] = (),
) -> str:
    """The report of a compiled model, as the text of an HTML file."""
    recorded = record(executable_behind(model))
    profile = profile_in(findings)
    measured = UNCALLED if profile is None else read_profile(profile)
    data = report_data(recorded, name=name, sizes=sizes, measured=measured, findings=findings)
    return page_html(data)


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    findings: Sequence[Finding] = (),
) -> Path:
    """Write the report of a compiled model to one HTML file, and say where it is."""
    target = html_path(path)
    text = report_html(model, name=name, sizes=sizes, findings=findings)
    target.write_text(text, encoding="utf-8")
    return target


def html_path(path: str | os.PathLike[str]) -> Path:
    """Where a report goes; an error for what no browser would open, or where no folder is."""
    target = Path(path)
    if target.suffix not in (".html", ".htm"):
        raise InputError(
            "a report is an HTML file", expected="a path that ends in .html", found=str(path)
        )
    check_writable(target)
    return target

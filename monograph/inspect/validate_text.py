"""A validation as a page: the verdict first, then every step with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monograph.inspect.page import count, figure, row, table, wrap

if TYPE_CHECKING:
    from monograph.inspect.validate import StepVerdict, Validation

MEANINGS = {
    "exact": "the same bits as {framework}",
    "more accurate": "nearer to double precision than {framework}",
    "within rounding": "as near to double precision as {framework}, but for rounding",
    "wrong": "an answer is not the model's",
    "not checked": "no sample could be run; inputs that the model takes are needed",
}


def validation_text(found: Validation) -> str:
    """The page."""
    lines = [found.model, *row("verdict", _verdict(found))]
    lines += row("compared", _format_comparison(found))
    for each in found.skipped:
        lines += row("not run", each)
    for note in found.notes:
        lines += row("note", note)
    lines += ["", *_steps(found)]
    return "\n".join(lines)


def _verdict(found: Validation) -> str:
    meaning = MEANINGS[found.word].format(framework=found.framework)
    where = f", first after {found.first_wrong}" if found.first_wrong else ""
    return f"{found.word}: {meaning}{where}"


def _format_comparison(found: Validation) -> str:
    ran = f"{count(len(found.samples), 'sample')}: {', '.join(found.samples) or 'none'}"
    changed = f"{len(found.steps)} of {count(found.passes_run, 'pass')} changed the graph"
    return f"{ran}; {changed}; {found.seconds:.1f} s"


def _steps(found: Validation) -> list[str]:
    ends = [] if found.program is None else [found.program]
    listed = [*found.steps, *ends]
    if not listed:
        return ["  no pass changed the graph"]
    headings = ("step", "verdict", "moved by", "error", "before", "in f64")
    lines = table(headings, [_cells(each) for each in listed], left=2)
    remarks = [each for each in listed if each.remark]
    for each in remarks:
        place = f" on {each.sample}" if each.sample else ""
        output = f", %{each.output}" if each.output else ""
        lines += ["", *wrap("  ", f"{each.name}{place}{output}: {each.remark}")]
    lines += ["", *wrap("  ", _legend(found))]
    return lines


def _legend(found: Validation) -> str:
    return (
        "Norms of differences, relative: from the answer before the step "
        f"(the program's from {found.framework}'s), errors of the answers after and before it "
        "against the same graph in double precision, and how far that one moved."
    )


def _cells(each: StepVerdict) -> tuple[str, ...]:
    numbers = (each.difference, each.error, each.other_error, each.drift)
    return (each.name, each.word, *map(figure, numbers))

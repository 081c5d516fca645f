"""A bisection as a page: what is at fault first, then how it was found, then the repro."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monograph.inspect.page import count, row

if TYPE_CHECKING:
    from monograph.inspect.bisect import Bisection


def bisection_text(found: Bisection) -> str:
    """The page."""
    if not found.is_found:
        lines = [found.model, *row("verdict", "no fault was found")]
        return "\n".join([*lines, *row("searched", f"{found.searched}; {found.seconds:.1f} s")])
    lines = [found.model, *row("at fault", found.step), *row("rewrite", found.rewrite)]
    lines += row("symptom", f"{found.symptom} (inputs: {found.sample})")
    if found.cured_by:
        lines += row("cured by", f"doing without {', '.join(found.cured_by)}")
    nodes = f"{count(found.nodes, 'node')} of the model, {found.nodes_left} left"
    tried = f"{count(found.tried, 'smaller case')} tried, {found.seconds:.1f} s"
    lines += row("reduced", f"{nodes}; {tried}")
    return "\n".join([*lines, "", found.repro.rstrip()])

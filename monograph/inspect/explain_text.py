"""An explanation as a page: 80 columns, the most important first."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from monograph.inspect.profile_text import duration
from monograph.program.arena import readable

if TYPE_CHECKING:
    from monograph.inspect.explain import Explanation, KernelExplanation
    from monograph.inspect.pass_steps import Figures

WIDTH = 80
FEW_REASONS = 3
_INSIDE = re.compile(r"(?P<name>%\S+) stays inside: (?P<size>.+) not written")
MOST_INPUTS = 4
"""Inputs that the page names; the rest are counted."""
MOST_SLOW = 10
"""Kernels that the page has a row for, those that take the longest."""
MOST_NODES = 12
"""Nodes of a kernel that the page shows; the rest are counted."""


def explanation_text(explained: Explanation) -> str:
    """The page."""
    parts = [
        _summary(explained),
        _stages(explained),
        _passes(explained),
        _steps(explained),
        _slowest(explained.kernels),
        _choices(explained),
        _bytes(explained),
        _layouts(explained),
        _interpreter(explained),
        _kernels(explained.kernels),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _summary(explained: Explanation) -> list[str]:
    launched = [kernel for kernel in explained.kernels if kernel.launches]
    distinct = f" ({len(launched)} distinct)" if 0 < len(launched) < explained.launches else ""
    once = len(explained.kernels) - len(launched)
    distinct += f", and {once} once, on loading" if once else ""
    nodes = f"{explained.nodes_given:,} as given, {explained.nodes_optimised:,} after the passes"
    if explained.nodes_lowered:
        nodes += f", {explained.nodes_lowered:,} lowered"
    shown = ", ".join(explained.inputs[:MOST_INPUTS])
    more = len(explained.inputs) - MOST_INPUTS
    shown += f" and {_count(more, 'more input')}" if more > 0 else ""
    lines = [
        explained.model,
        *(_wrap(f"  {'inputs':<13}", shown) if shown else []),
        _row("nodes", nodes),
        _row("kernels", f"{_count(explained.launches, 'launch')}{distinct}"),
        _row("interpreter", _count(explained.interpreted, "node")),
        _row("machine", explained.machine),
        _row("threads", str(explained.threads)),
        _row("cache", explained.cache),
    ]
    for sizes, state in explained.variants.items():
        lines.append(_row("variant", f"for {sizes}: {state}"))
    if explained.sizes:
        chosen = ", ".join(f"{name} = {size}" for name, size in explained.sizes.items())
        lines.append(_row("counted at", chosen))
    if explained.served_by is not None:
        lines += _wrap_row("served by", explained.served_by)
    for call, count in explained.library_calls.items():
        lines.append(_row("library", f"{count:,} × {call}"))
    if explained.seconds is not None and explained.roofline is not None:
        cost = f"undisturbed; measuring takes {explained.overhead:.2f} ×"
        lines.append(_row("a call", f"{duration(explained.seconds)} {cost}"))
        lines += _wrap(f"  {'machine at best':<17}", str(explained.roofline))
    return lines


def _stages(explained: Explanation) -> list[str]:
    if not explained.stages:
        return []
    total = sum(explained.stages.values())
    lines = [f"{'stages':<28}{'ms':>10}"]
    for name, seconds in (*explained.stages.items(), ("total", total)):
        share = f"{seconds / total:>6.0%}" if total and name != "total" else ""
        lines.append(f"  {name:<26}{seconds * 1000:>10.1f}{share}")
    return lines


def _passes(explained: Explanation) -> list[str]:
    if not explained.passes:
        return []
    lines = ["passes that changed the graph"]
    for each in explained.passes:
        did = ", ".join(f"{name} {count:,}" for name, count in each.did.items()) or "changed it"
        lines += _wrap(f"  {each.name:<20} ", did)
    return lines


def _steps(explained: Explanation) -> list[str]:
    """What each pass bought, row by row."""
    if not explained.steps:
        return []
    head = f"{'ms':>9}{'nodes':>8}{'kernels':>9}{'moved':>12}{'alive':>12}"
    lines = [f"{'what each pass bought':<30}{head}"]
    lines.append(_step_row("as given", None, explained.steps[0].before))
    for step in explained.steps:
        lines.append(_step_row(step.name.partition("{")[0], step.seconds, step.after))
    more = explained.launches - explained.steps[-1].after.kernels
    if more > 0:
        lines.append(f"  launches that prepare operands or put results together, beside: {more:,}")
    return lines


def _step_row(name: str, seconds: float | None, figures: Figures) -> str:
    took = "" if seconds is None else f"{seconds * 1e3:.1f}"
    moved, alive = readable(figures.bytes_moved), readable(figures.peak)
    return f"  {name:<28}{took:>9}{figures.nodes:>8,}{figures.kernels:>9,}{moved:>12}{alive:>12}"


def _choices(explained: Explanation) -> list[str]:
    """What was measured, and what each contender took."""
    if not explained.choices:
        return []
    lines = ["chosen by measurement, the fastest first, in µs"]
    for group, times in explained.choices.items():
        shown = ", ".join(f"{taken:.2f} {name}" for name, taken in times.items())
        lines += _wrap(f"  {group}: ", shown)
    return lines


def _bytes(explained: Explanation) -> list[str]:
    lines = []
    if explained.bytes_apart:
        share = explained.bytes_moved / explained.bytes_apart
        between = [_figure("between parts of a group", explained.bytes_between, "packed operands")]
        lines += [
            "bytes moved a call",
            _figure("a kernel a node", explained.bytes_apart),
            _figure("fused", explained.bytes_moved, f"{share:.0%} of that"),
            *(between if explained.bytes_between else []),
            "",
        ]
    memory = explained.memory
    if memory is None:
        return lines
    near = f"the plan is {memory.distance:.1%} above" if memory.distance else "reached"
    share = memory.peak / memory.requested if memory.requested else 1.0
    packed = [_figure("packed weights", memory.prepared, "made once, on loading")]
    return [
        *lines,
        "bytes held",
        _figure("inputs", memory.inputs),
        _figure("outputs", memory.outputs),
        _figure("weights", memory.weights, "as they lie, not copied"),
        *(packed if memory.prepared else []),
        _figure("intermediates, no reuse", memory.requested),
        _figure("intermediates, planned", memory.peak, f"{share:.0%} of that"),
        _figure("lower bound", memory.lower_bound, near),
    ]


def _layouts(explained: Explanation) -> list[str]:
    """Values that are not row-major, and the copies that this takes."""
    if not explained.arranged and not explained.conversions:
        return []
    left = _count(len(explained.conversions), "conversion")
    lines = ["layouts", f"  {_count(explained.arranged, 'value')} with channels last, {left} left"]
    for each in explained.conversions:
        lines.append(_figure(f"%{each.value}", each.nbytes, each.purpose))
    return lines


def _interpreter(explained: Explanation) -> list[str]:
    lines: list[str] = []
    if explained.specialised is not None:
        lines += _wrap("completed by its calls, since ", explained.specialised)
    if not explained.fallbacks:
        return lines
    lines += [f"in the interpreter: {_count(explained.interpreted, 'node')}"]
    return lines + [f"  {count:>5} × {name}" for name, count in explained.fallbacks.items()]


def _slowest(kernels: Sequence[KernelExplanation]) -> list[str]:
    """The kernels that take the most of a call, a row each."""
    timed = [each for each in kernels if each.seconds is not None and each.share is not None]
    if len(timed) < 2:
        return []
    ranked = sorted(timed, key=lambda each: -(each.seconds or 0.0))
    lines = [f"{'where the time goes':<36}{'µs':>10}{'of a call':>11}{'times':>7}  of the roof"]
    for each in ranked[:MOST_SLOW]:
        place = "" if each.place is None else f"{each.place.reached:.0%} {each.place.bound}"
        lines.append(_time_row(each.name, [each], place))
    left = ranked[MOST_SLOW:]
    if left:
        lines.append(_time_row(f"{len(left)} other kernels", left))
    places = (each.place for each in ranked[:MOST_SLOW] if each.saves_products)
    if any(place is not None and place.reached > 1 for place in places):
        lines.append("  above 100%: Winograd's transform needs fewer products than are counted")
    return lines


def _time_row(name: str, kernels: Sequence[KernelExplanation], place: str = "") -> str:
    micros = sum(each.seconds or 0.0 for each in kernels) * 1e6
    share = sum(each.share or 0.0 for each in kernels)
    times = sum(each.launches for each in kernels)
    named = name if len(name) <= 33 else f"{name[:32]}…"
    return f"  {named:<34}{micros:>10,.1f}{share:>11.1%}{times:>7,}  {place}".rstrip()


def _kernels(kernels: Sequence[KernelExplanation]) -> list[str]:
    lines = [f"{_count(len(kernels), 'kernel')}, and why each is one"] if kernels else []
    seen: set[tuple[str, ...]] = set()
    for each in kernels:
        lines += ["", *_kernel(each, each.nodes in seen)]
        seen.add(each.nodes)
    return lines


def _kernel(kernel: KernelExplanation, told: bool) -> list[str]:
    """One kernel; ``told`` says that the page has shown its group before."""
    times = "" if kernel.launches == 1 else f", {kernel.launches} launches"
    times = times if kernel.launches else ", once, on loading"
    moved = f"reads {readable(kernel.bytes_read)}, writes {readable(kernel.bytes_written)}"
    lines = [
        kernel.name,
        *_wrap("  ", f"{kernel.kind} over {kernel.space}{times}; {moved}"),
        *_wrap("  how  ", kernel.schedule),
        *_wrap("  time ", _time(kernel)),
    ]
    if told:
        return [*lines, "  another part of the same group"]
    for node in kernel.nodes[:MOST_NODES]:
        lines += _wrap("     ", node)
    if len(kernel.nodes) > MOST_NODES:
        lines.append(f"     and {len(kernel.nodes) - MOST_NODES} more nodes")
    for reason in _gather_reasons(kernel.together):
        lines += _wrap("  +  ", reason)
    for reason in kernel.apart:
        lines += _wrap("  -  ", reason)
    return lines


def _time(kernel: KernelExplanation) -> str:
    """How long it takes of a call, and what that is of what the machine can do."""
    if kernel.seconds is None or kernel.share is None:
        return ""
    text = f"{duration(kernel.seconds)} a call, {kernel.share:.1%} of it"
    place = kernel.place
    if place is None:
        return text
    roof = "peak arithmetic" if place.bound == "compute" else f"the bandwidth of {place.bound}"
    rates = f"{place.flops_per_second / 1e9:.3g} GFLOP/s, {place.bytes_per_second / 1e9:.3g} GB/s"
    return f"{text}; {place.reached:.0%} of {roof} ({rates})"


def _gather_reasons(reasons: Sequence[str]) -> list[str]:
    """Reasons, those for which a value stays inside in one sentence if there are many."""
    inside = [match for match in map(_INSIDE.fullmatch, reasons) if match is not None]
    if len(inside) <= FEW_REASONS:
        return list(reasons)
    others = [reason for reason in reasons if not _INSIDE.fullmatch(reason)]
    named = ", ".join(f"{match['name']} ({match['size']})" for match in inside)
    return [f"{len(inside)} values stay inside, not written: {named}", *others]


def _row(label: str, text: str) -> str:
    return f"  {label:<13}{text}"


def _wrap_row(label: str, text: str) -> list[str]:
    first = _row(label, "")
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))


def _figure(label: str, size: int, remark: str = "") -> str:
    return f"  {label:<26}{readable(size):>12}  {remark}".rstrip()


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=label,
        subsequent_indent=" " * max(len(label), 2) + ("  " if not label.strip() else ""),
        break_on_hyphens=False,
    )


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"

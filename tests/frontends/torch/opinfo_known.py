"""The samples of OpInfo that are known not to pass, each entry's with its reason.

``unexpected`` says which entries do worse than that; a run over the database fails if any does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.frontends.torch.opinfo_report import OpResult

FAILURES = ("fallback", "mismatch", "unsupported", "error", "untraceable", "value", "crash")


class Known(NamedTuple):
    """So many samples of an entry fail in this way."""

    kind: str
    samples: int
    reason: str


CUDA = "torch compiles these kernels for GPUs alone"
BRANCHES = "it returns a Python bool made of data, which no graph holds"
SPARSE = "sparse tensors have no type here"

KNOWN = {
    "allclose": Known("untraceable", 24, BRANCHES),
    "equal": Known("untraceable", 8, BRANCHES),
    "jiterator_unary": Known("untraceable", 3, CUDA),
    "jiterator_binary": Known("untraceable", 9, CUDA),
    "jiterator_4inputs_with_extra_args": Known("untraceable", 9, CUDA),
    "jiterator_binary_return_by_ref": Known("untraceable", 9, CUDA),
    "jiterator_2inputs_2outputs": Known("untraceable", 9, CUDA),
    "sparse.mm.reduce": Known("unsupported", 16, SPARSE),
    "sparse.sampled_addmm": Known("unsupported", 8, SPARSE),
    "to_sparse": Known("unsupported", 2, SPARSE),
    "nn.functional.multi_head_attention_forward": Known(
        "mismatch",
        4,
        "softmax of numbers in the thousands: 2e-5 of the result's size, three times eager's error",
    ),
}


def unexpected(results: Sequence[OpResult]) -> list[str]:
    """What fails and is not known to, in a line each."""
    lines = []
    for result in results:
        known = KNOWN.get(result.name)
        for kind in FAILURES:
            allowed = known.samples if known is not None and known.kind == kind else 0
            if result.count(kind) > allowed:
                lines.append(f"{result.name}: {result.count(kind)} {kind}, {allowed} known")
    return lines


def print_known(results: Sequence[OpResult]) -> None:
    """The known failures of the entries that were run, and whether they still are."""
    found = [(result, KNOWN[result.name]) for result in results if result.name in KNOWN]
    if not found:
        return
    print("\nknown not to pass:")
    for result, known in sorted(found, key=lambda pair: pair[0].name):
        failing = result.count(known.kind)
        fewer = "" if failing >= known.samples else f"; {known.samples} were known"
        print(f"  {result.name}: {failing} {known.kind}{fewer} ({known.reason})")

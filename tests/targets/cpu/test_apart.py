"""Op samples between fences, for processors of every width; see ``apart.py``.

The usual run takes some of all samples in all dtypes, and changes the setting from one piece to the
next: each of them has a twelfth. Everything in every setting takes an hour: ``make samples``.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.targets.cpu import apart
from tests.targets.cpu.apart import SETTINGS, Chosen, Chunk, chunked, every_sample, run_apart

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no mprotect")
SHARE = 6
"""One sample of so many is in the usual run."""
CHILDREN = 2


@pytest.mark.parametrize("child", range(CHILDREN))
def test_samples_are_right_between_fences_with_vectors_of_any_width(child: int) -> None:
    chunks = chunked(every_sample()[::SHARE], SETTINGS)
    assert {chunk.setting for chunk in chunks} == set(SETTINGS)
    findings = run_apart(chunks[child::CHILDREN])
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_samples_of_every_dtype_are_right_between_fences(setting: apart.Setting) -> None:
    findings = run_apart(chunked(every_sample(), [setting]))
    assert not findings, "\n".join(map(str, findings))


def test_the_sample_that_ends_the_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only that one: those before and after it are run all the same."""
    chosen = tuple(Chosen("add", number, "own") for number in range(3))
    others = Chunk(SETTINGS[0], (Chosen("exp", 0, "own"),))
    monkeypatch.setenv(apart.DEADLY, str(chosen[1]))
    (finding,) = run_apart([others, Chunk(SETTINGS[1], chosen), others])
    assert (finding.setting, finding.name) == (SETTINGS[1], str(chosen[1]))
    assert finding.problem == f"died of {signal.Signals.SIGSEGV.name}"

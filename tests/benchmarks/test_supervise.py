"""Watched processes: what one that hangs or dies costs, and when a run ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.supervise import ALLOCATOR_SETTINGS, Limits, Supervisor, _batch
from benchmarks.trial import Job
from benchmarks.workloads import Workload

# A process that reads a job as benchmarks.trial does, and does to each workload what its name says.
SCRIPT = """
import json, os, sys, time
path = sys.argv[1]
job = json.load(open(path))
journal = open(path.replace(".json", ".journal"), "a")

def write(**entry):
    print(json.dumps(entry), file=journal, flush=True)

for name in job["workloads"]:
    write(begin=name)
    refused = job["refused"].get(name, {})
    write(stage="peer", workload=name)
    if "peer" not in refused:
        if name == "dies":
            os.abort()
        if name == "hangs":
            time.sleep(60)
        if name == "raises":
            raise ValueError("out of luck")
    write(stage="timing", workload=name)
    if name == "never":
        os._exit(3)
    outcome = {"reason": refused.get("peer"), "median": 1.0, "best": 1.0}
    load = {"average": 0.0, "foreign": 0.0}
    row = dict(name=name, group="g", read=1, written=1, streams=False, load=load)
    write(row=row | {"outcomes": {"peer": outcome}})
"""


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    (tmp_path / "scripted_trial.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Supervisor(Job((), ("peer",)), Limits(compile=1.0), module="scripted_trial")


def _workloads(*names: str, group: str = "g") -> list[Workload]:
    return [Workload(name, group, lambda: None) for name in names]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dies", "SIGABRT"), ("hangs", "took more than 1 s to compile"), ("raises", "out of luck")],
)
def test_a_contender_that_fails_is_named_and_the_others_go_on(
    supervisor: Supervisor, name: str, reason: str
) -> None:
    rows = {row.name: row for row in supervisor.run(_workloads("first", name, "last"))}
    assert list(rows) == ["first", name, "last"]
    assert rows["first"].outcomes["peer"].counts and rows["last"].outcomes["peer"].counts
    assert reason in (rows[name].outcomes["peer"].reason or "")


def test_a_workload_that_ends_the_process_while_it_is_timed_is_given_up(
    supervisor: Supervisor,
) -> None:
    rows = {row.name: row for row in supervisor.run(_workloads("never", "last"))}
    assert "all at once" in (rows["never"].outcomes["peer"].reason or "")
    assert rows["last"].outcomes["peer"].counts


def test_nothing_begins_after_the_time_is_over(tmp_path: Path) -> None:
    late = Supervisor(Job((), until=time.time() - 1.0), module="never_started")
    assert list(late.run(_workloads("any"))) == []


def test_a_process_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no_such_module"):
        list(Supervisor(Job(()), module="no_such_module").run(_workloads("any")))


def test_models_have_a_process_of_their_own() -> None:
    small, model = _workloads("a", "b"), _workloads("m", "n", group="models")
    assert _batch([*small, *model]) == small
    assert _batch([*model, *small]) == model[:1]


def test_a_job_travels_as_json(tmp_path: Path) -> None:
    job = Job(("a",), ("eager",), refused={"a": {"ort": "hung"}})
    again = Job(**json.loads(json.dumps(job.__dict__)))
    assert again.refused == job.refused and tuple(again.workloads) == job.workloads


# Allocates, touches and frees 64 MiB again and again, and prints how many pages were faulted in.
ALLOCATE = """
import resource
for turn in range(9):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * (64 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are those of glibc")
def test_freed_memory_is_used_again_by_every_contender() -> None:
    def faults(settings: dict[str, str]) -> int:
        command, environment = [sys.executable, "-c", ALLOCATE], {**os.environ, **settings}
        return int(subprocess.check_output(command, env=environment))

    assert faults(ALLOCATOR_SETTINGS) < faults({}) / 10

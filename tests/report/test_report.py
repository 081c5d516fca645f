"""What a report holds, and that nothing in a model can break out of it."""

from __future__ import annotations

import html.parser
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.report import models
from monograph.report.code import Listing, cut
from monograph.report.data import record, report_data
from monograph.report.measured import measure
from monograph.report.page import pack, page_html, unpack
from monograph.report.write import report_html
from tests.cli.running import invoke, write_graph, write_perceptron
from tests.report.findings import all_findings

EVIL = "</script><img src=x onerror=alert(1)><!--"


def mlp(x: Any, w: Any, b: Any) -> Any:
    return F.softmax(F.gelu(x @ w + b), -1)


TYPES = ("f32[16, 32]", "f32[32, 64]", "f32[64]")


def facts_in(text: str) -> Any:
    found = re.search(r'<script type="text/plain" id="data-facts">([^<]*)</script>', text)
    assert found is not None
    return unpack(found[1])


def evil_graph() -> Graph:
    graph = Graph(EVIL)
    x = graph.add_input(EVIL, "f32[4]")
    weight = graph.add_weight(f"{EVIL}.weight", np.ones(4, np.float32))
    graph.set_outputs([F.relu(x + weight)])
    return graph


class Tags(html.parser.HTMLParser):
    """What a browser would see as tags: scripts hold text alone."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


def test_a_report_is_written_by_the_compiled_model_itself(tmp_path: Path) -> None:
    compiled = monograph.compile(mlp, *TYPES)
    path = compiled.report(tmp_path / "r.html")
    facts = facts_in(path.read_text())
    assert facts["stages"][0]["name"] == "as given"
    assert {kernel["name"] for kernel in facts["kernels"]} >= {
        name for step in facts["steps"] for name in step["kernels"]
    }
    assert compiled.report.nodes_before == len(compiled.executable.graph)


def test_every_node_that_runs_belongs_to_a_kernel() -> None:
    data = report_data(record(monograph.compile(mlp, *TYPES).executable))
    facts: Any = data.facts
    records: list[Any] = facts["records"]
    computed = {
        number
        for number, op, *_ in records
        if facts["ops"][op] in ("dot_general", "gelu", "exp", "divide")
    }
    grouped = {number for group in facts["groups"] for number in group["nodes"]}
    assert computed & grouped
    assert all(group["steps"] for group in facts["groups"] if group["kind"] == "contraction")


def test_each_kernel_has_its_own_listing_at_every_stage() -> None:
    data = report_data(record(monograph.compile(mlp, *TYPES).executable))
    launched = {name for step in data.facts["steps"] for name in step["kernels"]}  # type: ignore[union-attr, index, call-overload]
    assert launched <= set(data.listings[0].parts), "each has a plan"
    names = [kernel["name"] for kernel in data.facts["kernels"]]  # type: ignore[union-attr, index, call-overload]
    assert [each.stage for each in data.listings] == ["plan", "kernels", "nests", "llvm", "asm"]
    for listing in data.listings:
        expected = launched if listing.stage == "plan" else set(names)
        assert expected <= set(listing.parts), listing.stage
    llvm = next(each for each in data.listings if each.stage == "llvm")
    for name in names:
        assert f"@{name}(" in llvm.parts[name]
        assert not any(
            f"define void @{other}(" in llvm.parts[name] for other in names if other != name
        )


def test_a_listing_is_cut_at_kernels_and_long_lines_are_shortened() -> None:
    text = "; head\ndefine internal void @k0.range() {\n  a\n}\n\ndefine void @k0() {\n  b\n}\n"
    text += "define i32 @entry() {\n  " + "c" * 5000 + "\n}\n"
    parts = dict(cut(text, "llvm", ["k0"]))
    assert parts["k0"].count("define") == 2
    assert "head" in parts[""] and "@entry" in parts[""]
    assert len(parts[""]) < 3000 and "characters)" in parts[""]


def test_the_arena_is_the_plan_that_runs() -> None:
    executable = monograph.compile(mlp, *TYPES).executable
    facts: Any = report_data(record(executable)).facts
    plan = executable.native.plan_for(())
    assert facts["arena"]["peak"] == plan.peak
    assert [slot[1] for slot in facts["arena"]["slots"]] == list(plan.offsets)


def test_what_was_found_out_is_in_the_report(tmp_path: Path) -> None:
    compiled = monograph.compile(mlp, *TYPES)
    facts = facts_in(compiled.report(tmp_path / "r.html", findings=all_findings()).read_text())
    assert facts["validation"]["program"]["name"] == "simplify"
    assert [each["part"]["name"] for each in facts["ablation"]["without"]][1] == "fusion"
    assert facts["ablation"]["explained_alone"] > 0
    assert [each["name"] for each in facts["comparison"]["contenders"]][2] == "iree"
    assert facts["bisection"]["step"] == "simplify"
    with pytest.raises(InputError, match="shows no such finding"):
        compiled.report(tmp_path / "r.html", findings=["fine"])


def test_a_profile_gives_a_report_its_times(tmp_path: Path) -> None:
    compiled = monograph.compile(mlp, *TYPES)
    shapes = [[int(part) for part in each[4:-1].split(",")] for each in TYPES]
    found = compiled.profile(*(np.ones(shape, "f4") for shape in shapes), calls=3)
    facts = facts_in(compiled.report(tmp_path / "r.html", findings=[found]).read_text())
    assert facts["measured"]["undisturbed_ms"] == found.undisturbed * 1e3
    timed = {each["name"]: each["ms"] for each in facts["kernels"] if each["ms"]}
    assert timed == {each.name: each.seconds * 1e3 for each in found.kernels}
    assert facts["measured"]["spans"]["rows"]


def test_every_stage_is_counted_as_a_program(tmp_path: Path) -> None:
    compiled = monograph.compile(mlp, *TYPES)
    facts = facts_in(compiled.report(tmp_path / "r.html").read_text())
    counted = [each["figures"] for each in facts["stages"]]
    assert [each["kernels"] > 0 and each["bytes_moved"] > 0 for each in counted] == [True] * len(
        counted
    )
    assert counted[-1]["bytes_moved"] == facts["summary"]["bytes_moved"]


def test_versions_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    text = json.dumps(facts_in(report_html(monograph.compile(F.relu, "f32[4]")))["installed"])
    assert "llvmlite" in text and "vectors of" in text
    assert not any(folder in text for folder in (str(Path.cwd()), str(Path.home()), sys.prefix))


def test_names_in_a_model_cannot_become_markup(tmp_path: Path) -> None:
    compiled = monograph.compile(evil_graph(), cache=False)
    text = report_html(compiled, name=EVIL)
    tags = Tags()
    tags.feed(text)
    usual = Tags()
    usual.feed(report_html(monograph.compile(F.relu, "f32[4]", cache=False)))
    assert tags.found == usual.found
    assert EVIL not in text
    assert EVIL in facts_in(text)["names"]
    assert EVIL not in evil_graph().svg()
    assert EVIL not in compiled._repr_html_()


def test_the_page_may_load_and_send_nothing() -> None:
    text = report_html(monograph.compile(F.relu, "f32[4]"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1] and "connect-src 'none'" in policy[1]
    assert "unsafe-inline" not in policy[1].split("script-src")[1].split(";")[0]
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_packing_round_trips_any_text() -> None:
    value = {"a": [1, 2.5, None, True], "b": EVIL, "c": "\ud800 lone, \u2028 line"}
    assert "<" not in pack(value)
    assert unpack(pack(value))["a"] == value["a"]  # type: ignore[index, call-overload]
    assert unpack(pack(value))["b"] == EVIL  # type: ignore[index, call-overload]


def test_a_file_that_a_graph_names_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret\n")
    node = f'%y = relu(%x) : f32[4] loc("{secret}":1)'
    text = f"graph @g(%x: f32[4]) -> (f32[4]) {{\n  {node}\n  return %y\n}}"
    facts: Any = report_data(record(monograph.compile(monograph.parse(text), cache=False))).facts
    assert [Path(each["path"]).name for each in facts["files"]] == ["secret.txt"]
    assert all(not each["lines"] for each in facts["files"])


def test_the_source_of_a_traced_function_is_quoted() -> None:
    facts: Any = report_data(record(monograph.compile(mlp, *TYPES, cache=False).executable)).facts
    here = next(each for each in facts["files"] if each["path"].endswith("test_report.py"))
    lines = {place[1] for place in facts["locations"] if facts["files"][place[0]] is here}
    assert any("F.softmax(F.gelu" in here["lines"]["1"][line - 1] for line in lines)


def test_a_loaded_program_says_what_is_not_known(tmp_path: Path) -> None:
    monograph.compile(mlp, *TYPES).save(tmp_path / "m.mono")
    loaded = monograph.load(tmp_path / "m.mono")
    facts = facts_in(report_html(loaded))
    assert facts["missing"] and facts["no_listings"]
    assert facts["kernels"] and facts["arena"]["slots"] is not None


def test_a_program_that_calls_complete_has_a_report() -> None:
    compiled = monograph.compile(lambda x: F.nonzero(x), "f32[8]", cache=False)
    facts = facts_in(report_html(compiled))
    assert facts["stages"]


def test_a_report_needs_a_compiled_model_and_a_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a compiled model"):
        report_html(mlp)
    compiled = monograph.compile(mlp, *TYPES)
    with pytest.raises(InputError, match="HTML file"):
        compiled.report(tmp_path / "r.pdf")
    with pytest.raises(InputError, match="no such folder"):
        compiled.report(tmp_path / "nowhere" / "r.html")


def test_the_command_writes_a_report_with_a_measured_time(tmp_path: Path) -> None:
    monograph.save_graph(monograph.trace(mlp, *TYPES), tmp_path / "g.ir")
    result = invoke("report", str(tmp_path / "g.ir"), "-o", str(tmp_path / "r.html"))
    assert result.exit_code == 0, result.output
    facts = facts_in((tmp_path / "r.html").read_text())
    assert facts["measured"]["call_ms"] > 0
    assert "random inputs" in facts["measured"]["note"]
    again = invoke("report", str(tmp_path / "g.ir"), "-o", str(tmp_path / "r.html"), "--no-measure")
    assert again.exit_code == 0
    assert facts_in((tmp_path / "r.html").read_text())["measured"]["call_ms"] is None


def test_listings_are_packed_apart_from_the_facts() -> None:
    data = report_data(record(monograph.compile(F.relu, "f32[64]").executable))
    text = page_html(data)
    for listing in data.listings:
        found = re.search(rf'id="data-listing-{listing.stage}">([^<]*)<', text)
        assert found is not None
        assert Listing(listing.stage, unpack(found[1])) == listing  # type: ignore[arg-type]


def test_a_program_for_a_gpu_shows_its_source() -> None:
    pytest.importorskip("triton")
    compiled = monograph.compile(mlp, *TYPES, target="gpu:sm_90", cache=False)
    data = report_data(record(compiled.executable), measured=measure(compiled.executable, {}))
    assert [each.stage for each in data.listings] == ["plan", "kernels", "source"]
    assert all("@triton.jit" in text for text in data.listings[2].parts.values())
    note = data.facts["measured"]["note"]  # type: ignore[index, call-overload]
    assert note.startswith("it was not called: this program was compiled for another target")


def test_times_are_those_of_the_kernels() -> None:
    executable = monograph.compile(mlp, *TYPES, keep_weights=True).executable
    facts: Any = report_data(record(executable), measured=measure(executable, {})).facts
    timed = [kernel for kernel in facts["kernels"] if kernel["ms"]]
    assert timed and all(0 < kernel["share"] <= 1 for kernel in timed)
    assert sum(kernel["ms"] for kernel in timed) <= 1.5 * facts["measured"]["call_ms"]
    spans = facts["measured"]["spans"]
    names = {facts["kernels"][row[0]]["name"] for row in spans["rows"] if isinstance(row[0], int)}
    assert names >= {kernel["name"] for kernel in timed}
    assert all(0 <= began <= ended <= spans["call"] for _, _, began, ended in spans["rows"])
    assert [level["name"] for level in facts["measured"]["levels"]] == ["L2", "L3", "memory"]


def test_a_report_says_whether_the_model_is_right(tmp_path: Path) -> None:
    model, page = write_perceptron(tmp_path), tmp_path / "r.html"
    done = invoke("report", model, "-o", str(page), "--validate", "--no-measure")
    assert done.exit_code == 0, done.exception or done.output
    found = facts_in(page.read_text())["validation"]
    assert found["word"] in ("exact", "more accurate", "within rounding")
    assert found["program"]["name"] == "compiled program"


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        (("validate",), "validation"),
        (("bisect",), "bisection"),
        (("ablate", "--budget", "2", "--no-alone"), "ablation"),
        (("compare", "--with", "numpy", "--rounds", "1"), "comparison"),
    ],
)
def test_commands_write_what_they_find_to_a_report(
    tmp_path: Path, command: tuple[str, ...], fact: str
) -> None:
    page = tmp_path / "r.html"
    name, *arguments = command
    done = invoke(name, write_graph(tmp_path), *arguments, "--report", str(page))
    assert done.exit_code == 0, done.exception or done.output
    facts = facts_in(page.read_text())
    assert facts[fact] and facts["stages"]
    nowhere = invoke(name, write_graph(tmp_path), *arguments, "--report", "r.pdf")
    assert isinstance(nowhere.exception, InputError)


def test_a_report_compares_and_ablates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ABLATION_SECONDS", 2.0)
    page = tmp_path / "r.html"
    arguments = ("--ablate", "--compare", "torch", "--no-measure")
    done = invoke("report", write_graph(tmp_path), "-o", str(page), *arguments)
    assert done.exit_code == 0, done.exception or done.output
    facts = facts_in(page.read_text())
    assert [each["name"] for each in facts["comparison"]["contenders"]] == ["monograph", "torch"]
    assert facts["ablation"]["without"]

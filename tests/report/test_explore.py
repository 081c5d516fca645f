"""The explorer: who may ask, what an edit may hold, and what comes of it."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options
from monograph.errors import InputError, MonographError
from monograph.report.explorer import Explorer, Opening
from monograph.report.server import MAX_REQUEST_BYTES, ExplorerServer
from monograph.report.workbench import MAX_NODES, Edit, Workbench

GRAPH = """\
graph @main(%x: f32[4, 4]) -> (f32[4, 4]) {
  %e = exp(%x) : f32[4, 4]
  %y = matmul(%e, %x) : f32[4, 4]
  return %y
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplorerServer]:
    path = tmp_path_factory.mktemp("explore") / "g.ir"
    path.write_text(GRAPH)
    explorer = Explorer(Opening(str(path), threads=1), seconds=60.0)
    with ExplorerServer(explorer) as found:
        found.open()
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()
    explorer.close()


def ask(
    server: ExplorerServer,
    path: str | None = None,
    body: Any = None,
    method: str | None = None,
    **headers: str,
) -> tuple[int, str]:
    """One request; headers that are given replace the usual ones."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
    usual = {"Host": f"127.0.0.1:{server.port}"}
    if body is not None:
        usual["Content-Type"] = "application/json"
    given = usual | {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    where = f"/{server.token}/" if path is None else path
    try:
        connection.request(method or ("GET" if body is None else "POST"), where, data, given)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def compile_at(server: ExplorerServer) -> str:
    return f"/{server.token}/compile"


def test_the_page_is_served_to_who_has_the_token(server: ExplorerServer) -> None:
    status, text = ask(server)
    assert status == 200
    assert f'data-live="/{server.token}/compile"' in text
    assert "connect-src 'self'" in text


@pytest.mark.parametrize("path", ["/", "", "/wrong/", "//", "/compile", "/%00/", "*"])
def test_nobody_else_gets_anything(server: ExplorerServer, path: str) -> None:
    assert ask(server, path)[0] == 403
    assert ask(server, path, {"text": GRAPH})[0] == 403


def test_a_name_that_points_here_is_refused(server: ExplorerServer) -> None:
    assert ask(server, Host=f"evil.example:{server.port}")[0] == 403
    assert ask(server, Host="127.0.0.1")[0] == 403
    assert ask(server, Host=f"localhost:{server.port}")[0] == 200
    assert ask(server, Origin="http://evil.example")[0] == 403
    edit = {"text": GRAPH}
    assert ask(server, compile_at(server), edit, Origin="https://evil.example")[0] == 403


def test_only_bounded_json_is_read(server: ExplorerServer) -> None:
    where = compile_at(server)
    assert ask(server, where, {"text": GRAPH}, Content_Type="text/plain")[0] == 415
    assert ask(server, where, b"{", Content_Length=str(MAX_REQUEST_BYTES + 1))[0] == 413
    assert ask(server, where, b"{", Content_Length="-1")[0] == 411
    assert ask(server, where, b"not json")[0] == 400
    assert ask(server, where, b"[" * 100_000)[0] == 400
    assert ask(server, f"/{server.token}/../etc/passwd")[0] == 404
    assert ask(server, method="DELETE")[0] == 501


def test_an_edit_is_compiled_and_measured(server: ExplorerServer) -> None:
    text = GRAPH.replace("exp(%x)", "tanh(%x)")
    status, answer = ask(server, compile_at(server), {"text": text, "passes": "cse,dce"})
    assert status == 200
    found = json.loads(answer)
    assert "tanh" in found["facts"]["ops"]
    assert found["facts"]["measured"]["call_ms"] > 0
    assert found["listings"]["asm"]


def test_a_wrong_edit_is_told_and_the_next_one_works(server: ExplorerServer) -> None:
    status, answer = ask(server, compile_at(server), {"text": GRAPH.replace("exp", "expp")})
    assert status == 422
    assert "there is no op called `expp`" in json.loads(answer)["error"]
    status, answer = ask(server, compile_at(server), {"text": GRAPH, "passes": "no_such_pass"})
    assert status == 422 and "no pass called" in json.loads(answer)["error"]
    assert ask(server, compile_at(server), {"text": GRAPH})[0] == 200


def test_one_edit_at_a_time(server: ExplorerServer) -> None:
    with server.explorer._working:
        status, answer = ask(server, compile_at(server), {"text": GRAPH})
    assert status == 429 and "another edit" in answer


@pytest.mark.slow
def test_an_edit_that_takes_too_long_is_given_up_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "g.ir"
    path.write_text(GRAPH)
    explorer = Explorer(Opening(str(path), threads=1), seconds=60.0)
    try:
        explorer.open()
        explorer.seconds = 0.01
        with pytest.raises(MonographError, match="given up after"):
            explorer.edit({"text": GRAPH})
        explorer.seconds = 60.0
        assert explorer.edit({"text": GRAPH})["facts"]["kernels"]
    finally:
        explorer.close()


def bench(tmp_path: Path) -> Workbench:
    graph = monograph.Graph("main")
    x = graph.add_input("x", "f32[4]")
    weight = graph.add_weight("w", np.arange(4, dtype=np.float32))
    graph.set_outputs([x + weight])
    monograph.save_graph(graph, tmp_path / "m.ir")
    found = Workbench(str(tmp_path / "m.ir"), Options(cache=False, keep_weights=True), {})
    found.open([])
    return found


def test_weights_are_the_models_own_by_digest_and_random_otherwise(tmp_path: Path) -> None:
    found = bench(tmp_path)
    text = (tmp_path / "m.ir").read_text()
    same = found.parse(text)
    assert np.array_equal(monograph.interpret(same, [np.zeros(4, np.float32)])[0], range(4))
    digest = text.split('"')[3]
    other = found.parse(text.replace(digest, "0" * 32))
    assert not np.array_equal(monograph.interpret(other, [np.zeros(4, np.float32)])[0], range(4))


@pytest.mark.parametrize(
    "node, complaint",
    [
        ("torch.call(%x) : f32[4]", "cannot be edited here"),
        ("# hidden\n torch.aten.from_file(%x) : f32[4]", "cannot be edited here"),
        ("onnx.deferred(%x) : f32[4]", "cannot be edited here"),
        (
            'weight("big", "00000000000000000000000000000000") : f32[100000, 100000]',
            "too large to be made up",
        ),
    ],
)
def test_an_edit_reaches_no_other_framework_and_no_great_size(
    tmp_path: Path, node: str, complaint: str
) -> None:
    text = f"graph @g(%x: f32[4]) -> (f32[4]) {{\n  %y = {node}\n  return %x\n}}"
    with pytest.raises(InputError, match=complaint):
        bench(tmp_path).parse(text)


def test_a_value_may_be_called_after_a_framework(tmp_path: Path) -> None:
    text = 'graph @g(%torch.x: f32[4]) -> (f32[4]) {\n  %"torch.y" = relu(%torch.x) : f32[4]\n'
    assert len(bench(tmp_path).parse(text + '  return %"torch.y"\n}')) == 1


def test_an_edit_has_a_most_of_nodes(tmp_path: Path) -> None:
    nodes = "\n".join(f"  %v{k} = relu(%x) : f32[4]" for k in range(MAX_NODES + 1))
    text = f"graph @g(%x: f32[4]) -> (f32[4]) {{\n{nodes}\n  return %x\n}}"
    with pytest.raises(InputError, match="too large"):
        bench(tmp_path).parse(text)


@pytest.mark.parametrize(
    "given",
    [
        [], {}, {"text": 3}, {"text": "", "passes": 1}, {"text": "", "level": "O9"},
        {"text": "", "threads": 0}, {"text": "", "threads": True}, {"text": "", "path": "/etc"},
        {"text": "x" * 2_000_001},
    ],
)  # fmt: skip
def test_what_is_no_edit_is_refused(given: Any) -> None:
    with pytest.raises(InputError):
        Edit.read(given)


def test_a_compiled_program_cannot_be_explored(tmp_path: Path) -> None:
    monograph.compile(monograph.parse(GRAPH), cache=False).save(tmp_path / "m.mono")
    explorer = Explorer(Opening(str(tmp_path / "m.mono")), seconds=60.0)
    try:
        with pytest.raises(MonographError, match="no graph to edit"):
            explorer.open()
    finally:
        explorer.close()


def test_a_model_that_cannot_be_opened_is_told_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    for opening, told in (
        (Opening(str(tmp_path / "g.ir"), passes="nothing"), "no pass called 'nothing'"),
        (Opening(f"{'x' * 300}.ir"), "File name too long"),
    ):
        explorer = Explorer(opening, seconds=60.0)
        with pytest.raises(MonographError, match=told):
            explorer.open()
        explorer.close()
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_ends_it_and_its_worker(tmp_path: Path) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    # Whoever runs the tests may ignore the signal, which children inherit.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from monograph.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, "explore", str(tmp_path / "g.ir")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().startswith("http://127.0.0.1:")
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert output.endswith("ended\n")


def test_a_schedule_is_turned_to_what_was_offered_and_to_nothing_else(tmp_path: Path) -> None:
    monograph.save_graph(
        monograph.trace(lambda x: F.exp(x) + x, "f32[64, 4096]"), tmp_path / "s.ir"
    )
    edited = Workbench(str(tmp_path / "s.ir"), Options(cache=False, listings=True), {})
    opened: Any = edited.open([]).facts
    site = next(each for each in opened["sites"] if each["knobs"].get("width"))
    width = site["knobs"]["width"][0]
    tuning = {site["digest"]: {"width": width}}
    turned: Any = edited.edit(Edit.read({"text": opened["text"], "tuning": tuning})).facts
    (now,) = (each for each in turned["sites"] if each["digest"] == site["digest"])
    assert now["edits"] == {"width": width}
    schedules = [kernel["schedule"] for kernel in turned["kernels"]]
    assert any(f", {width})" in schedule for schedule in schedules)
    assert schedules != [kernel["schedule"] for kernel in opened["kernels"]]
    for wrong in ({"width": width + 1}, {"height": 3}, {"../width": 1}):
        with pytest.raises(MonographError, match="cannot be turned"):
            edited.edit(Edit.read({"text": opened["text"], "tuning": {site["digest"]: wrong}}))


@pytest.mark.parametrize(
    "tuning", [[], {"": {}}, {"../x": {}}, {"ab" * 8: 3}, {"ab" * 8: {"a": ""}}]
)
def test_what_is_no_tuning_is_refused(tuning: Any) -> None:
    with pytest.raises(InputError):
        Edit.read({"text": GRAPH, "tuning": tuning})


def test_an_edit_imports_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> Any:
        raise AssertionError("an edit looked for entry points")

    edited = bench(tmp_path)
    monkeypatch.setattr("monograph.entry_points._find", fail)
    with pytest.raises(MonographError, match="there is no op called"):
        edited.edit(Edit.read({"text": GRAPH.replace("exp(", "others.exp(")}))
    with pytest.raises(MonographError, match="there is no pass called"):
        edited.edit(Edit.read({"text": GRAPH, "passes": "others"}))

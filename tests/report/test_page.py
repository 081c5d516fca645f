"""The page in a real browser: what it draws, how it is moved about, and how quick it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.compiler import Options
from monograph.inspect.models import find_model
from monograph.ir.graph import Graph
from monograph.report.explorer import Explorer, Opening
from monograph.report.models import write_page
from monograph.report.server import ExplorerServer
from monograph.report.write import write_report
from tests.report.browser import Browser, browser, needs_chromium
from tests.report.findings import all_findings
from tests.report.test_explore import GRAPH
from tests.report.test_report import EVIL, TYPES, evil_graph, mlp

pytestmark = [pytest.mark.slow, needs_chromium]

DOWN, UP, ESCAPE, ENTER = "\ue015", "\ue013", "\ue00c", "\ue007"
LAST = "const last = monograph.model.lastStage;"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "small.html"
    return write_report(monograph.compile(mlp, *TYPES, cache=False), path, name="small")


def show(window: Browser, path: Path, place: str = "") -> None:
    window.open("about:blank")
    window.open(f"{path.as_uri()}{place}")
    window.wait("document.documentElement.dataset.ready")


def text_of(window: Browser, selector: str) -> str:
    return str(window.run(f"return document.querySelector({selector!r})?.textContent ?? ''"))


def test_it_opens_without_an_error_and_shows_every_view(window: Browser, small: Path) -> None:
    show(window, small)
    assert "softmax" in str(window.run(LAST + "return JSON.stringify(monograph.model.facts.ops)"))
    for view in ("overview", "graph", "kernels", "memory"):
        window.run(f"monograph.go({{view: {view!r}}})")
        window.wait("document.querySelector('main .view')?.getBoundingClientRect().height > 100")
    assert window.log() == []


def test_a_node_leads_to_its_kernel_its_listing_and_back(window: Browser, small: Path) -> None:
    show(window, small, "#graph")
    window.run(
        LAST + "const node = monograph.model.graphAt(last).nodes.find(n => n.op === 'dot_general');"
        "monograph.go({view: 'graph', stage: last, node: node.id})"
    )
    assert "dot_general" in text_of(window, ".pane.right code.line")
    window.run("document.querySelector('.kernel-card .link').click()")
    window.wait("document.querySelector('.kernel-details h2')?.textContent.includes('dot_general')")
    for tab, sign in [("LLVM IR", "define"), ("Assembly", "ret"), ("Loop nest", "nest ")]:
        window.run(
            "const wanted = arguments[0]; [...document.querySelectorAll('.code-box [role=tab]')]"
            ".find(tab => tab.textContent === wanted).click()",
            tab,
        )
        shown = "monograph.kernelsView.lines.join('\\n')"
        window.wait(f"{shown}.includes({sign!r})")
    window.run("history.back(); history.back(); history.back()")
    window.wait("location.hash.startsWith('#kernels')")
    window.run("history.back()")
    window.wait("location.hash.startsWith('#graph')")
    assert "dot_general" in text_of(window, ".pane.right code.line")


def test_a_source_line_leads_to_its_nodes(window: Browser, small: Path) -> None:
    show(window, small, "#graph")
    window.run("[...document.querySelectorAll('.pane.left [role=tab]')][1].click()")
    window.wait("document.querySelector('.row.used')")
    assert "F.softmax(F.gelu" in text_of(window, ".row.used .text")
    window.run("document.querySelector('.row.used').click()")
    assert window.run("return monograph.drawing.marked.size") >= 4


def test_the_slider_moves_through_the_passes_and_says_what_changed(
    window: Browser, small: Path
) -> None:
    show(window, small, "#graph")
    stages = window.run("return monograph.model.facts.stages.length")
    assert stages >= 2
    window.run("document.querySelector('#stage').focus()")
    window.press("\ue014")  # arrow right
    window.wait("monograph.state.stage === 1")
    assert window.run("return monograph.model.graphAt(1).nodes.some(n => n.change)")
    names = [
        str(each) for each in window.run("return monograph.model.facts.stages.map(s => s.name)")
    ]
    assert text_of(window, ".stage-name").startswith(names[1].partition("{")[0])
    (lowering,) = [name for name in names if name.startswith("lower_composites{")]
    window.run(f"monograph.go({{view: 'graph', stage: {names.index(lowering)}, node: null}})")
    assert text_of(window, ".stage-name").startswith("lower_composites{…} ")
    assert text_of(window, ".pane.right code.line") == lowering


def test_the_graph_is_walked_with_the_keyboard_and_told(window: Browser, small: Path) -> None:
    show(window, small, "#graph")
    window.run("monograph.drawing.focus()")
    window.press(DOWN)
    window.wait("monograph.state.node !== null")
    window.press(DOWN)
    window.press(DOWN)
    assert window.run("return monograph.model.graphAt(0).byId.get(monograph.state.node).op") in (
        "add", "matmul", "gelu",
    )  # fmt: skip
    assert "%" in text_of(window, "[aria-live=polite]")
    window.press(ESCAPE)
    window.wait("monograph.state.node === null")


def test_search_finds_by_op_and_selects(window: Browser, small: Path) -> None:
    show(window, small, "#graph")
    window.run("document.body.focus()")
    window.press("/")
    window.press("gelu")
    window.wait("document.querySelectorAll('.result').length >= 1")
    window.press(ENTER)
    window.wait("monograph.state.node !== null")
    assert "gelu" in text_of(window, ".pane.right h2")


def test_keys_are_the_pages_behind_a_search_and_beside_the_slider(
    window: Browser, small: Path
) -> None:
    show(window, small, "#graph")
    window.run("document.querySelector('#stage').focus()")
    window.press("]")
    window.wait("monograph.state.stage === 1")
    window.press("[/")
    window.press("gelu")
    window.wait("document.querySelectorAll('.result').length >= 1")
    window.press(ENTER + "]")
    window.wait("monograph.state.stage === 1")
    window.press("5")  # what was found out, of which this page has nothing
    window.press("3")
    window.wait("location.hash.startsWith('#kernels')")
    window.run("history.back()")
    window.wait("location.hash.startsWith('#graph')")


def test_an_op_that_is_searched_for_comes_before_values_of_that_name(
    window: Browser, tmp_path: Path
) -> None:
    class Exp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.exp = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.exp(self.exp(x))

    compiled = monograph.compile(Exp().eval(), torch.ones(2, 4), cache=False)
    show(window, compiled.report(tmp_path / "r.html"), "#graph")
    window.run("document.body.focus()")
    window.press("/exp")
    window.wait("document.querySelectorAll('.result').length >= 3")
    first = text_of(window, ".result")
    assert first.startswith("%exp = exp(")


def test_a_click_on_a_node_selects_it(window: Browser, small: Path) -> None:
    show(window, small, "#graph")
    window.run("monograph.drawing.fit(); monograph.drawing.drawNow()")
    place = window.run(
        "const node = monograph.model.graphAt(0).nodes.find(n => n.op === 'gelu');"
        "const box = monograph.drawing.boxOf(node.id);"
        "const at = document.querySelector('canvas').getBoundingClientRect();"
        "return [at.x + box.x, at.y + box.y]"
    )
    window.click(*place)
    window.wait("monograph.state.node !== null")
    assert "gelu" in text_of(window, ".pane.right h2")


def test_every_control_has_a_name(window: Browser, small: Path) -> None:
    show(window, small)
    for view in ("overview", "graph", "kernels", "memory"):
        window.run(f"monograph.go({{view: {view!r}}})")
        unnamed = window.run(
            "return [...document.querySelectorAll('button, input, canvas, [role=listbox],"
            ' [role=img], [tabindex="0"]\')].filter(e => !(e.textContent.trim()'
            " || e.getAttribute('aria-label') || e.closest('label') || e.labels?.length))"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        assert unnamed == [], view


def test_what_was_found_out_is_shown(window: Browser, tmp_path: Path) -> None:
    compiled = monograph.compile(mlp, *TYPES, cache=False)
    show(window, compiled.report(tmp_path / "r.html", findings=all_findings(EVIL)), "#overview")
    assert "without fusion 3.59 (2.96–4.16) × as slow" in text_of(window, ".overview")
    window.run("document.body.focus()")
    window.press("5")
    window.wait("document.querySelector('.findings')?.getBoundingClientRect().height > 100")
    titles = window.run(
        "return [...document.querySelectorAll('.findings h2')].map(e => e.innerText)"
    )
    assert titles == [
        "At fault: simplify",
        "Is it right? within rounding",
        "Beside others",
        "What each part of the compiler buys",
    ]
    rows = window.run(
        "return [...document.querySelectorAll('.findings tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()).filter(Boolean))"
    )
    assert ["torch", "9.00 ms", "3.00 (2.50–3.50)", "2.0e-7", "within rounding"] in [
        row[:5] for row in rows
    ]
    assert ["cse", "no measurable effect", "10", "13.0 MiB"] in [row[:4] for row in rows]
    assert ["fusion", "3.59 (2.96–4.16)"] in [row[:2] for row in rows]
    assert "iree did not run: it is not installed" in text_of(window, ".findings")
    assert "nothing to do in this model: dce" in text_of(window, ".findings")
    assert f"rule planted: {EVIL}" in text_of(window, ".findings .told")
    drawn = window.run(
        "return [...document.querySelectorAll('.findings rect')].map(e => e.getBBox().width)"
    )
    assert len(drawn) == 5 and max(drawn) > 20
    assert window.run("return document.images.length") == 0
    assert window.log() == []


def test_the_first_view_says_what_passes_bought_and_where_time_goes(
    window: Browser, tmp_path: Path
) -> None:
    monograph.save_graph(monograph.trace(mlp, *TYPES), tmp_path / "g.ir")
    write_page(tmp_path / "r.html", find_model(str(tmp_path / "g.ir")), Options(), sizes={})
    show(window, tmp_path / "r.html", "#overview")
    rows = window.run(
        "return [...document.querySelectorAll('.overview .panel')].slice(0, 2)"
        ".map(panel => [...panel.querySelectorAll('tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim())))"
    )
    passes, kernels = rows
    assert passes[0][:7] == ["Pass", "Nodes", "Change", "Kernels", "Moved", "Alive", "Time"]
    assert passes[1][0] == "as given" and passes[1][4].endswith("KiB")
    assert kernels[0][:5] == ["Kernel", "Launches", "Time", "Of a call", "Of the roof"]
    shares = [float(row[3].removesuffix(" %")) for row in kernels[1:]]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 101
    name = kernels[1][0]
    window.run("document.querySelectorAll('.overview .panel')[1].querySelector('.link').click()")
    window.wait(f"document.querySelector('.kernel-details h2')?.textContent === {name!r}")
    window.run("history.back()")
    window.wait("document.querySelector('.overview details')")
    window.run("document.querySelector('.overview summary').click()")
    assert "llvmlite" in text_of(window, ".overview details dl")
    assert window.log() == []


def test_a_report_without_findings_has_no_place_for_them(window: Browser, small: Path) -> None:
    show(window, small, "#findings")
    assert "Findings" not in text_of(window, ".tabs")
    assert window.run("return document.querySelector('.overview') !== null")


def test_light_and_dark_are_legible(small: Path) -> None:
    """The contrast of text is at least 4.5, as WCAG's level AA wants it."""
    ratio = """
        const parse = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
            .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
        const probe = name => { const e = document.createElement('i');
            e.style.color = `var(${name})`; document.body.append(e);
            const c = getComputedStyle(e).color; e.remove(); return c; };
        const pair = (a, b) => { const [x, y] = [light(parse(probe(a))), light(parse(probe(b)))]
            .sort((p, q) => q - p); return (x + .05) / (y + .05); };
        const inks = ['--ink', '--ink-soft', '--accent', '--added', '--changed'];
        const papers = ['--paper', '--surface', '--raised'];
        return inks.flatMap(ink => papers.map(paper => [ink, paper, pair(ink, paper)]));
    """
    colors = []
    for dark in (False, True):
        with browser(dark=dark) as found:
            show(found, small)
            for ink, paper, contrast in found.run(ratio):
                assert contrast >= 4.5, (ink, paper, contrast, dark)
            colors.append(found.run("return getComputedStyle(document.body).backgroundColor"))
            found.run("document.querySelector('[aria-label=\"Light or dark\"]').click()")
            colors.append(found.run("return getComputedStyle(document.body).backgroundColor"))
    assert colors[0] == colors[3] != colors[1] == colors[2]


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_is_wider_than_the_window(small: Path, width: int) -> None:
    with browser(width, 800) as found:
        show(found, small)
        for view in ("overview", "graph", "kernels", "memory"):
            found.run(f"monograph.go({{view: {view!r}}})")
            wide = found.run(
                "return [document.documentElement.scrollWidth, document.querySelector('.page')"
                ".scrollWidth, innerWidth]"
            )
            assert max(wide[:2]) <= wide[2], view


def test_names_in_a_model_stay_text(window: Browser, tmp_path: Path) -> None:
    compiled = monograph.compile(evil_graph(), cache=False)
    show(window, write_report(compiled, tmp_path / "evil.html", name=EVIL))
    for view in ("overview", "graph", "kernels", "memory"):
        window.run(f"monograph.go({{view: {view!r}, stage: 0}})")
        window.run("const n = monograph.model.graphAt(0).nodes[0]; monograph.go({node: n.id})")
        assert window.run("return document.images.length") == 0
    assert EVIL in text_of(window, ".pane.right code.line")
    assert text_of(window, "h1") == EVIL
    assert not [line for line in window.log() if "alert" in line]


def chain(layers: int, *, wide: bool) -> Graph:
    """A deep network of like layers, or one in which every layer is drawn at random."""
    rng = np.random.default_rng(0)
    graph = Graph("chain")
    values = [graph.add_input("x", "f32[8, 8]")]
    for _ in range(layers):
        if wide:
            near = values[-12:]
            a, b = (near[int(rng.integers(len(near)))] for _ in range(2))
            values.append(F.add(a, b) if rng.random() < 0.5 else F.tanh(a))
        else:
            x = values[-1]
            values.append(F.relu(F.tanh(x) * F.sigmoid(x)) + x)
    graph.set_outputs(values[-4:])
    return graph


@pytest.mark.parametrize("wide", [False, True])
def test_five_thousand_nodes_are_moved_without_lag(
    window: Browser, tmp_path: Path, wide: bool
) -> None:
    from monograph.report.data import Recorded, report_data
    from monograph.report.history import History
    from monograph.report.page import page_html

    graph = chain(5000 if wide else 1000, wide=wide)
    assert len(graph) == 5000
    stand_in = monograph.compile(F.relu, "f32[8, 8]", cache=False).executable
    history = History()
    data = report_data(Recorded(stand_in, history, history.finish(graph)), name="5,000 nodes")
    path = tmp_path / "large.html"
    path.write_text(page_html(data))
    show(window, path)
    window.run(
        "window.longest = 0; let before = performance.now();"
        "setInterval(() => { const now = performance.now();"
        " longest = Math.max(longest, now - before); before = now; }, 10);"
        "location.hash = '#graph'; monograph.restore()"
    )
    window.wait("monograph.drawing.scene", 60)
    # The layout is made by a worker: the page itself never stands still for long.
    frozen = window.run("return window.longest")
    assert frozen < 1000, f"the page stood still for {frozen:.0f} ms"
    layout = window.run("return monograph.drawing.lastLayout")
    frames: Any = window.run(
        "const times = []; const d = monograph.drawing; d.fit();"
        "for (let k = 0; k < 40; k += 1) {"
        " if (k < 20) d.zoom(1.25); else d.panBy(-40, -60);"
        " d.drawNow(); times.push(d.lastFrame); }"
        "return times"
    )
    # Wall time, on a machine that may have other work: a tenth of this when it has none.
    assert layout < 30_000, f"laid out in {layout:.0f} ms"
    assert float(np.median(frames)) < 17, f"a frame took {np.median(frames):.1f} ms"
    assert max(frames) < 120, f"one frame took {max(frames):.0f} ms"


def test_the_live_page_compiles_what_is_edited(window: Browser, tmp_path: Path) -> None:
    (tmp_path / "g.ir").write_text(GRAPH)
    explorer = Explorer(Opening(str(tmp_path / "g.ir"), threads=1), seconds=60.0)
    with ExplorerServer(explorer) as server:
        thread = threading.Thread(target=server.serve_forever)
        try:
            server.open()
            thread.start()
            window.open(server.address + "#edit")
            window.wait("document.documentElement.dataset.ready")
            assert "exp(%x)" in window.run("return document.querySelector('textarea').value")
            edit = (
                "const area = document.querySelector('textarea');"
                "area.value = area.value.replace(arguments[0], arguments[1]);"
                "document.querySelector('button.primary').click()"
            )
            window.run(edit, "exp(", "sigmoid(")
            window.wait("monograph.model.facts.ops.includes('sigmoid')", 90)
            assert "a call takes" in text_of(window, ".status")
            window.run(edit, "sigmoid(", "no_such_op(")
            window.wait("!document.querySelector('pre.error').hidden", 90)
            assert "no_such_op" in text_of(window, "pre.error")
            assert window.run("return monograph.model.facts.ops.includes('sigmoid')")
            window.run(edit, "no_such_op(", "tanh(")
            window.wait("monograph.model.facts.ops.includes('tanh')", 90)
            window.run(
                "const menu = document.querySelector('.schedules select[aria-label^=width]');"
                "menu.selectedIndex = 1; menu.dispatchEvent(new Event('change'));"
                "document.querySelector('button.primary').click()"
            )
            window.wait("monograph.model.facts.sites.some((site) => site.edits.width)", 90)
            assert "1 of them changed" in text_of(window, ".schedules summary")
            assert "(before: " in text_of(window, ".status")
        finally:
            if thread.is_alive():
                server.shutdown()
                thread.join()
            explorer.close()


def test_bert_base_opens_in_two_seconds(window: Browser, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(transformers.BertConfig()).eval()
    ids = torch.zeros(1, 128, dtype=torch.int64)
    compiled = monograph.compile(model, ids, cache=False, keep_weights=True)
    path = compiled.report(tmp_path / "bert.html")
    assert path.stat().st_size < 10 * 2**20
    started = time.monotonic()
    show(window, path, "#graph")
    window.wait("monograph.drawing.scene")
    seconds = time.monotonic() - started
    assert seconds < 2.0, f"opened in {seconds:.2f} s"

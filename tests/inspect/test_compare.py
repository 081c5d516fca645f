"""A comparison tells a wrong answer from a rounded one, and names who did not run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from monograph.compiler import Options
from monograph.inspect import peers
from monograph.inspect.compare import Comparison, RatioSpread, compare, spread_of
from monograph.inspect.inputs import make_inputs
from monograph.inspect.models import executable_of, find_model
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from tests.cli.running import invoke, output_of, write_graph


def compared(path: str, others: Sequence[str], rounds: int = 3) -> Comparison:
    model = find_model(path)
    return compare(
        model,
        lambda: executable_of(model.compiled(Options(keep_weights=True))),
        lambda executable: make_inputs(executable.graph, {}, {}, 0),
        others,
        rounds=rounds,
    )


def planted(change: float) -> peers.Runtime:
    """A runtime whose answers are ours in NumPy, with one element changed."""

    def run(graph: Graph, source: Path | None, inputs: Sequence[Array], threads: int) -> peers.Call:
        def call() -> list[Array]:
            results = [np.array(each) for each in interpret(graph, list(inputs))]
            results[0].flat[3] *= np.float32(1 + change)
            return results

        return call

    return run


def test_a_wrong_peer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_graph(tmp_path)
    runtimes = {"onnxruntime": planted(0.5), "openvino": planted(0.0)}
    monkeypatch.setattr(peers, "RUNTIMES", {**peers.RUNTIMES, **runtimes})
    found = compared(path, ["onnxruntime", "openvino"])
    words = {each.name: each.verdict for each in found.contenders}
    assert words["onnxruntime"] == "wrong"
    assert words["openvino"] in ("exact", "more accurate", "within rounding")
    assert found.is_right, "ours is held against the more accurate of the two"
    (wrong,) = [each for each in found.contenders if each.verdict == "wrong"]
    assert wrong.error is not None and wrong.error > 1e-3
    assert "1 of 16 wrong" in wrong.remark and wrong.remark in " ".join(str(found).split())


def test_who_cannot_run_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> peers.Call:
        raise RuntimeError("no kernel for relu\nat line 3")

    monkeypatch.setattr(peers, "RUNTIMES", {**peers.RUNTIMES, "iree": fails})
    found = compared(write_graph(tmp_path), ["torch", "iree", "numpy"])
    reasons = {each.name: each.reason for each in found.contenders if not each.ran}
    assert "torch does not run" in reasons["torch"]
    assert reasons["iree"] == "RuntimeError: no kernel for relu"
    assert [each.name for each in found.contenders if each.ran] == ["monograph", "numpy"]
    assert max(map(len, str(found).splitlines()[1:])) <= 80


def test_ours_takes_as_long_as_ours(tmp_path: Path) -> None:
    (ours, other) = compared(write_graph(tmp_path), ["interpreter"]).contenders
    assert ours.times_ours == RatioSpread(1.0, 1.0, 1.0)
    assert other.times_ours is not None and other.times_ours.median > 1
    assert ours.compile_seconds is not None and ours.compile_seconds > 0


def test_a_spread_that_covers_one_is_noise() -> None:
    assert spread_of([0.9, 1.0, 1.1, 1.2]).is_noise
    assert not spread_of([1.2, 1.3, 1.25, 1.4]).is_noise
    assert spread_of([1.004, 1.005, 1.006] * 5).is_noise, "less than such timing can tell"


@pytest.mark.parametrize("rounds", [3, 5, 6, 9, 15])
def test_the_interval_holds_the_true_median_as_often_as_it_says(rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    if rounds < 6:
        noise = generator.normal(size=(2000, rounds))
    else:  # of any kind: now and then a program that takes the processor for a while
        noise = generator.standard_cauchy(size=(2000, rounds)).clip(-20, 20)
    spreads = [spread_of(list(np.exp(0.1 * each))) for each in noise]
    missed = sum(not each.low <= 1 <= each.high for each in spreads)
    assert missed / len(spreads) < 0.07
    found = [spread_of(list(1.5 * np.exp(0.01 * each))) for each in noise]
    assert sum(not each.is_noise for each in found) / len(found) > 0.9


@pytest.mark.parametrize("other", ["onnxruntime", "xla"])
def test_others_agree_on_a_graph_with_weights(other: str, tmp_path: Path) -> None:
    pytest.importorskip({"xla": "jax"}.get(other, other))
    path = tmp_path / "net.py"
    path.write_text(
        "import numpy as np\n"
        "from monograph import functional as F\n"
        "W = np.linspace(-1, 1, 8 * 16, dtype='f4').reshape(8, 16)\n"
        "def net(x):\n"
        "    return F.tanh(x @ x.graph.add_weight('w', W))\n"
        "example_inputs = ('f32[4, 8]',)\n"
    )
    found = compared(f"{path}:net", [other])
    assert found.contenders[1].ran, found.contenders[1].reason
    assert "wrong" not in {each.verdict for each in found.contenders}


def test_the_command_prints_json_and_exits_with_3_if_we_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_graph(tmp_path)
    text = output_of("compare", path, "--with", "numpy", "--rounds", "2", "--json")
    names = [each["name"] for each in json.loads(text)["contenders"]]
    assert names == ["monograph", "numpy"]
    done = invoke("compare", path, "--with", "nobody", "--rounds", "2")
    assert done.exit_code == 1 and "nobody" in str(done.exception)
    # A graph that is not the one that is compiled: then the compiled program is wrong.
    monkeypatch.setattr("monograph.inspect.reference.judge", _always_wrong)
    done = invoke("compare", path, "--with", "numpy", "--rounds", "2")
    assert done.exit_code == 3


def _always_wrong(*_: object) -> object:
    from monograph.inspect.precise import Verdict

    return Verdict("wrong", 1.0, 1.0, 0.0, "planted")

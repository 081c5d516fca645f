"""``monograph quantize``: from a model and samples to a quantized file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import monograph
from tests.cli.running import invoke, output_of, write_perceptron


def write_samples(folder: Path) -> str:
    path = folder / "samples.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32))
    return str(path)


def test_samples_become_a_profile_and_a_model(tmp_path: Path) -> None:
    model, data = write_perceptron(tmp_path), write_samples(tmp_path)
    profile, output = tmp_path / "profile.json", tmp_path / "q.mono"
    text = output_of(
        "quantize", model, "--data", data, "--profile", str(profile), "-o", str(output)
    )
    assert "2 of 2 layers quantized" in text and "dequantize nodes are left" in text
    assert json.loads(profile.read_text())["batches"] == 5
    loaded = monograph.load(output)
    x = np.load(data)["x"][:3]
    assert np.asarray(loaded(x)).shape[-1] == 4
    again = output_of("quantize", model, "--profile", str(profile), "--json", "--skip", "linear_1")
    layers = json.loads(again)["layers"]
    assert [each["precision"] for each in layers] == ["u8 × i8", "float"]


def test_an_onnx_file_is_written(tmp_path: Path) -> None:
    output = tmp_path / "q.onnx"
    output_of(
        "quantize", write_perceptron(tmp_path), "--data", write_samples(tmp_path), "-o", str(output)
    )
    names = {node.op.name for node in monograph.from_onnx(output).nodes}
    assert {"quantize", "dequantize"} <= names


def test_layers_are_measured_and_left_in_float(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    data = tmp_path / "samples.npy"
    np.save(data, np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32))
    given = ("quantize", model, "--data", str(data), "--equalize", "--sensitivity", "--json")
    report = json.loads(output_of(*given))
    errors = [each["error"] for each in report["sensitivity"]["layers"]]
    assert len(errors) == len(report["layers"]) == 2 and min(errors) > 0
    budget = str(sum(errors) / 2)
    page = tmp_path / "report.html"
    mixed = json.loads(output_of(*given, "--max-error", budget, "--report", str(page)))
    assert page.read_text().count("<svg") >= 4 and "budget" in page.read_text()
    assert sorted(each["precision"] for each in mixed["layers"]) == ["float", "u8 × i8"]


def test_every_scheme_is_in_the_help() -> None:
    words = output_of("quantize", "--help").replace("│", " ").replace(",", " ").replace(".", " ")
    assert set(monograph.quantize.schemes) <= set(words.replace(";", " ").split())


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    done = invoke("quantize", model)
    assert done.exit_code == 1 and "needs samples" in str(done.exception)
    done = invoke("quantize", model, "--data", "nowhere.npz")
    assert "there is no file" in str(done.exception)
    done = invoke("quantize", model, "--data", write_samples(tmp_path), "-o", "q.txt")
    assert "no kind of model" in str(done.exception)
    np.savez(tmp_path / "other.npz", a=np.zeros((4, 8)), b=np.zeros(3))
    done = invoke("quantize", model, "--data", str(tmp_path / "other.npz"))
    assert "lack the input" in str(done.exception)
    np.savez(tmp_path / "words.npz", x=np.array(["a"] * 8))
    done = invoke("quantize", model, "--data", str(tmp_path / "words.npz"))
    assert "are no numbers" in str(done.exception)
    done = invoke("quantize", model, "--scheme", "w8", "-o", str(tmp_path / "none" / "q.mono"))
    assert "there is no folder" in str(done.exception)
    for option in (["--sensitivity"], ["--max-error", "0.1"], ["--smoothing", "0.5"]):
        done = invoke("quantize", model, "--scheme", "w8", *option)
        assert "samples are needed" in str(done.exception)
    for name, expected in (("x.txt", "no page"), ("none/x.html", "no folder")):
        given = ("--data", write_samples(tmp_path), "--sensitivity")
        done = invoke("quantize", model, *given, "--report", str(tmp_path / name))
        assert expected in str(done.exception)
    done = invoke("quantize", model, "--scheme", "w8", "--report", "x.html")
    assert "--sensitivity beside" in str(done.exception)
    for contents in (b"PK nothing", b"hello", b""):
        (tmp_path / "bad.npz").write_bytes(contents)
        done = invoke("quantize", model, "--data", str(tmp_path / "bad.npz"))
        assert "not a file of arrays" in str(done.exception)
        assert "pickle" not in str(done.exception)

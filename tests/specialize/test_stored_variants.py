"""A file may hold programs for some sizes beside the one for all; weights are stored once."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import monograph
from monograph import functional as F
from monograph.cli.main import app
from monograph.errors import InputError, UnsupportedError
from monograph.runtime.artifact import read_artifact
from monograph.specialize.variants import State

WEIGHT = np.random.default_rng(0).normal(size=(48, 400)).astype(np.float32)
TABLE = np.random.default_rng(1).normal(size=(400,)).astype(np.float32)


def function(x: Any) -> Any:
    return F.softmax(x @ WEIGHT + TABLE, -1)


def compiled(**options: Any) -> Any:
    return monograph.compile(function, "f32[n, 48]", variants=4, cache=False, **options)


def draw(rows: int) -> Any:
    return np.random.default_rng(rows).normal(size=(rows, 48)).astype(np.float32)


def saved(folder: Path, *sizes: int) -> Path:
    model = compiled()
    for size in sizes:
        model.executable.add_variant({"n": size})
    return Path(model.save(folder / f"with{len(sizes)}.mono", variants=True))


def test_a_loaded_program_runs_the_variants_that_it_was_saved_with(tmp_path: Path) -> None:
    model = compiled()
    loaded: Any = monograph.load(saved(tmp_path, 5, 16))
    variants = loaded.executable.native.variants
    assert {sizes: each.state for sizes, each in variants.states().items()} == {
        (5,): State.LOADED,
        (16,): State.LOADED,
    }
    calls = []
    native = variants.ready((5,)).native
    run = native.run
    native.run = lambda *given: (calls.append(given), run(*given))[1]
    for rows in (5, 16, 7, 5, 16):
        np.testing.assert_allclose(loaded(draw(rows)), model(draw(rows)), rtol=1e-5, atol=1e-7)
    assert calls
    for _ in range(6):  # by a built-in function, in the end
        np.testing.assert_allclose(loaded(draw(16)), model(draw(16)), rtol=1e-5, atol=1e-7)


def test_equal_weights_are_stored_once(tmp_path: Path) -> None:
    plain = read_artifact(saved(tmp_path))
    arrays = read_artifact(saved(tmp_path, 5, 16, 64)).arrays
    names = {name for name, array in arrays.items() if np.array_equal(array, TABLE)}
    assert len(names) == 1
    contents = [array.tobytes() for array in arrays.values()]
    assert len(set(contents)) == len(contents)
    assert "variants" in plain.manifest and not plain.manifest["variants"]


def test_without_being_asked_for_none_are_stored(tmp_path: Path) -> None:
    model = compiled()
    model.executable.add_variant({"n": 5})
    path = model.save(tmp_path / "plain.mono")
    assert not [name for name in zipfile.ZipFile(path).namelist() if "variants" in name]
    assert monograph.load(path).executable.native.variants is None  # type: ignore[union-attr]


def test_a_loaded_program_is_saved_with_its_variants_again(tmp_path: Path) -> None:
    loaded: Any = monograph.load(saved(tmp_path, 5))
    again: Any = monograph.load(loaded.save(tmp_path / "again.mono", variants=True))
    assert list(again.executable.native.variants.states()) == [(5,)]
    np.testing.assert_array_equal(again(draw(5)), loaded(draw(5)))


def explained(model: Any, **options: Any) -> str:
    """What explain says, on one line."""
    return " ".join(str(monograph.explain(model, **options)).split())


def test_explain_says_what_runs_and_why(tmp_path: Path) -> None:
    model = compiled()
    model.executable.add_variant({"n": 5})
    text = explained(model, sizes={"n": 5})
    assert "for n = 5: compiled" in text and "the variant for these sizes" in text
    assert "compiled after 2 more calls" in explained(model, sizes={"n": 6})
    model(draw(6))
    assert "compiled after 1 more calls" in explained(model, sizes={"n": 6})
    loaded = monograph.load(saved(tmp_path, 5))
    assert "for n = 5: loaded" in explained(loaded)
    assert "cannot be specialized" in explained(loaded, sizes={"n": 6})
    plain = monograph.load(model.save(tmp_path / "plain.mono"))
    assert "cannot be specialized" in explained(plain)


def test_sizes_that_are_not_the_programs_are_refused(tmp_path: Path) -> None:
    model = compiled()
    with pytest.raises(InputError, match="one size of each symbolic dimension"):
        model.executable.add_variant({"m": 5})
    fixed: Any = monograph.compile(function, "f32[3, 48]")
    with pytest.raises(UnsupportedError, match="no variants"):
        fixed.executable.add_variant({})
    loaded: Any = monograph.load(saved(tmp_path, 5))
    with pytest.raises(UnsupportedError, match="cannot be specialized"):
        loaded.executable.add_variant({"n": 9})


def test_the_command_line_compiles_variants(tmp_path: Path) -> None:
    source, target = tmp_path / "model.ir", tmp_path / "model.mono"
    source.write_text(str(monograph.trace(lambda x: F.softmax(F.exp(x), -1), "f32[n, m]")))
    arguments = ["compile", str(source), "--variant", "n=3,m=8", "--variant", "n=1,m=8"]
    done = CliRunner().invoke(app, [*arguments, "-o", str(target)])
    assert done.exit_code == 0, done.output
    loaded: Any = monograph.load(target)
    assert len(loaded.native.variants.states()) == 2
    x = np.ones((3, 8), np.float32)
    np.testing.assert_allclose(loaded(x)[0], np.full((3, 8), 0.125), rtol=1e-6)

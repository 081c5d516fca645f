"""What can be compiled, and what somebody who tries something else is told."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph.errors import InputError, UnsupportedError

torch = pytest.importorskip("torch")
X = torch.arange(12.0).reshape(3, 4)


class Double(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def test_an_exported_program_is_compiled_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "double.pt2"
    torch.export.save(torch.export.export(Double(), (X,)), path)
    for given in (path, str(path)):
        torch.testing.assert_close(monograph.compile(given)(x=X), X * 2)


def test_a_file_that_is_no_exported_program_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "other.pt2"
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"cannot be read by torch\.export\.load"):
        monograph.compile(path)


class Payload:
    """What writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("entry", ["data/sample_inputs/model.pt", "data/weights/weight_0"])
def test_an_exported_program_runs_no_code_when_it_is_read(tmp_path: Path, entry: str) -> None:
    good, bad, touched = (tmp_path / name for name in ("good.pt2", "bad.pt2", "touched"))
    torch.export.save(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)), good)
    stream = io.BytesIO()
    torch.save(Payload(touched), stream)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("weights_config.json") and "weights" in entry:
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            folder = info.filename.partition("/")[0]
            target.writestr(
                info.filename, stream.getvalue() if info.filename == f"{folder}/{entry}" else data
            )
    with pytest.raises(InputError, match=r"cannot be read by torch\.export\.load"):
        monograph.compile(bad)
    assert not touched.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors", ".keras", ".py", ".mono"])
def test_other_files_are_refused_with_a_way_around(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"something")
    with pytest.raises(InputError) as caught:
        monograph.compile(path)
    assert str(path) in caught.value.message and caught.value.hint


@pytest.mark.parametrize("path", ["missing.onnx", "missing.pt2", "x * 2 + 1", "a" * 5000, "a\0b"])
def test_a_string_is_a_path_of_a_file_that_must_exist(path: str) -> None:
    with pytest.raises(InputError, match="there is no file") as caught:
        monograph.compile(path)
    assert "taken for the path" in (caught.value.hint or "")


@pytest.mark.parametrize("model", [None, 3, X, X.numpy(), [Double()]])
@pytest.mark.parametrize("examples", [(), (X,)])
def test_what_is_no_model_is_called_so(model: object, examples: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="not something that can be compiled"):
        monograph.compile(model, *examples)


@pytest.mark.parametrize("examples", [(), (X,)])
def test_a_class_is_no_model(examples: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="Double is a class, not a model"):
        monograph.compile(Double, *examples)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("made", [torch.jit.script, lambda m: torch.jit.trace(m, X)])
def test_torchscript_is_refused_with_a_way_around(made: Any) -> None:
    with pytest.raises(UnsupportedError, match="TorchScript") as caught:
        monograph.compile(made(torch.nn.Linear(4, 2)), X)
    assert "the module that it was made of" in (caught.value.hint or "")


@pytest.mark.parametrize("package", ["flax.linen", "tensorflow.python", "keras"])
def test_functions_of_other_frameworks_are_refused(package: str) -> None:
    kind = type("Function", (), {"__call__": lambda _, x: x, "__module__": package})
    with pytest.raises(InputError, match="no frontend") as caught:
        monograph.compile(kind(), np.ones(3, np.float32))
    assert "ONNX" in (caught.value.hint or "") or "jax.jit" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no frontend"):
        monograph.compile(lambda x: x, kind())


@pytest.mark.parametrize("level", [2, "2", None, ["O2"], "o2"])
def test_a_level_that_there_is_not_is_refused(level: Any) -> None:
    with pytest.raises(InputError, match="not an optimisation level"):
        monograph.compile(Double(), X, level=level)


@pytest.mark.parametrize(
    "options",
    [{"budget": "1s"}, {"winograd_tolerance": "small"}, {"kwargs": [X]}, {"threads": "2"}],
)
def test_options_of_another_type_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        monograph.compile(Double(), X, **options)


def test_examples_that_the_program_does_not_take_are_counted() -> None:
    with pytest.raises(InputError, match="missing a required argument: 'x'"):
        monograph.compile(Double())
    with pytest.raises(InputError, match="too many positional arguments"):
        monograph.compile(Double(), X, X)
    with pytest.raises(InputError, match="unexpected keyword argument 'y'"):
        monograph.compile(Double(), X, kwargs={"y": X})

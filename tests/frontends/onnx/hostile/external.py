"""Weights in files that a model has no business to read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from monograph.errors import InputError
from tests.frontends.onnx.hostile.case import hostile, model, node, saved, sized, value

OUTSIDE = "the external data of tensor 'w' is outside the model's folder"
ONES = np.ones(4, np.float32)
UNREADABLE = "the external data of tensor 'w' cannot be read"


def external(dtype: int = TensorProto.FLOAT, **entries: str) -> ModelProto:
    """A model whose weight, of 4 numbers, is said to be elsewhere."""
    weight = sized("w", [4], dtype, data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        weight.external_data.add(key=key, value=text)
    return model(
        node("Add", "x w", "y"), inputs=[value("x")], outputs=[value("y", None)],
        initializers=[weight],
    )  # fmt: skip


def save(folder: Path, made: ModelProto) -> Path:
    """The model in a folder of its own beside a secret, and a good weight beside the model."""
    inner = folder / "model"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (inner / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    path = inner / "model.onnx"
    path.write_bytes(saved(made))
    return path


ESCAPES = {
    "a weight in the folder above": "../secret.bin",
    "a weight down and up": "sub/../../secret.bin",
    "a weight above by backslashes": "..\\secret.bin",
    "a weight at an absolute path": "/etc/hostname",
    "a weight on a drive": "C:\\secret.bin",
    "a weight at a URL": "file:///etc/hostname",
    "a weight at a network path": "\\\\host\\share\\w.bin",
    "a weight at the folder itself": ".",
    "a weight with a zero byte": "w.bin\0.png",
    "a weight at no path": "",
}

for title, location in ESCAPES.items():

    @hostile(title, InputError, OUTSIDE)
    def _(folder: Path, location: str = location) -> Path:
        return save(folder, external(location=location))


@hostile("a weight in the home folder", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    return save(folder, external(location="~/.ssh/id_rsa"))


@hostile("a weight by a symbolic link", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    path = save(folder, external(location="link.bin"))
    (path.parent / "link.bin").symlink_to("../secret.bin")
    return path


@hostile("a weight by a link to a folder", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    path = save(folder, external(location="up/secret.bin"))
    (path.parent / "up").symlink_to("..")
    return path


@hostile("a weight by a hard link", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    path = save(folder, external(location="link.bin"))
    (path.parent / "link.bin").hardlink_to(folder / "secret.bin")
    return path


@hostile("a weight in a pipe", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    path = save(folder, external(location="pipe.bin"))
    os.mkfifo(path.parent / "pipe.bin")
    return path


@hostile("a weight that is a folder", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    path = save(folder, external(location="sub"))
    (path.parent / "sub").mkdir()
    return path


@hostile("a weight in a file that is not there", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    return save(folder, external(location="nothing.bin"))


@hostile("a weight under a file", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin/w.bin"))


@hostile("a weight with a very long path", InputError, UNREADABLE)
def _(folder: Path) -> Path:
    return save(folder, external(location="a" * 100_000))


@hostile(
    "a weight beyond the end", InputError, "the external data of tensor 'w' lies outside its file"
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", offset="4"))


@hostile(
    "a weight far beyond the end",
    InputError,
    "the external data of tensor 'w' lies outside its file",
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", offset=str(2**62)))


@hostile(
    "a weight at a negative offset",
    InputError,
    "the external data of tensor 'w' has a wrong offset",
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", offset="-4"))


@hostile(
    "a weight of a negative length",
    InputError,
    "the external data of tensor 'w' has a wrong length",
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", length="-16"))


@hostile(
    "a weight of another length", InputError, "the external data of tensor 'w' has the wrong length"
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", length="12"))


@hostile(
    "a weight at an offset of words",
    InputError,
    "the external data of tensor 'w' has a wrong offset",
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", offset="0x0"))


@hostile(
    "a weight at an offset of a million digits",
    InputError,
    "the external data of tensor 'w' has a wrong offset",
)
def _(folder: Path) -> Path:
    return save(folder, external(location="w.bin", offset="9" * 1_000_000))


@hostile("a weight without a location", InputError, "the external data of tensor 'w' cannot be")
def _(folder: Path) -> Path:
    return save(folder, external(offset="0"))


@hostile(
    "a weight with two locations",
    InputError,
    "the external data of tensor 'w' is outside the model's folder",
)
def _(folder: Path) -> Path:
    made = external(location="w.bin")
    made.graph.initializer[0].external_data.add(key="location", value="/etc/hostname")
    return save(folder, made)


@hostile("strings in another file", InputError, "the external data of tensor 'w' cannot be")
def _(folder: Path) -> Path:
    return save(folder, external(TensorProto.STRING, location="w.bin"))


@hostile(
    "a weight elsewhere, and no folder",
    InputError,
    "tensor 'w' is in another file, 'w.bin', and no folder is known",
)
def _(folder: Path) -> bytes:
    return saved(external(location="w.bin"))


@hostile(
    "an attribute in a file above",
    InputError,
    "the external data of tensor 'w' is outside the model's folder",
)
def _(folder: Path) -> Path:
    weight = external(location="../secret.bin").graph.initializer[0]
    made = model(
        node("Constant", "", "c", value=weight), node("Add", "x c", "y"),
        inputs=[value("x")], outputs=[value("y", None)],
    )  # fmt: skip
    return save(folder, made)


@hostile("a weight at an odd offset", run={"x": ONES}, gives=[1, 2, 3, 4])
def _(folder: Path) -> Path:
    path = save(folder, external(location="w.bin", offset="3"))
    (path.parent / "w.bin").write_bytes(b"pad" + np.arange(4, dtype=np.float32).tobytes())
    return path


@hostile("two weights that overlap", run={"x": ONES}, gives=[1, 2, 3, 4])
def _(folder: Path) -> Path:
    made = external(location="w.bin")
    made.graph.node.add(op_type="Add", input=["y", "w2"], output=["z"])
    made.graph.output.append(value("z", None))
    second = made.graph.initializer.add()
    second.CopyFrom(made.graph.initializer[0])
    second.name = "w2"
    return save(folder, made)

"""Loading a model and refusing one that is malformed, before any work is done on it."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Mapping
from pathlib import Path

import onnx.defs
import onnx.helper
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import FunctionProto, ModelProto

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.frontends.onnx.blobs import Blob, OpenFile
from monograph.frontends.onnx.external import Files
from monograph.frontends.onnx.habits import warn
from monograph.frontends.onnx.wire import MIN_BLOB_BYTES, Spans, without_large_tensors

LARGEST_FILE = 2**31 - 1
NEWEST = {
    "": onnx.defs.onnx_opset_version(),
    "ai.onnx.ml": onnx.defs.onnx_ml_opset_version(),
}
ASSUMED = {"ai.onnx.ml": NEWEST["ai.onnx.ml"], "com.microsoft": 1}
"""The versions of domains that a model uses without an import, as ONNX Runtime has them."""

UNNAMED = "<onnx>"
"""What a model is called that did not come from a file."""

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function that a model defines."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that has been read, and where its other files are.

    ``blobs`` is the raw data of large initializers, by position, which ``proto`` is without.
    """

    proto: ModelProto
    file: str
    files: Files
    opsets: Mapping[str, int]
    functions: Mapping[FunctionKey, FunctionProto]
    blobs: Mapping[int, Blob]


def load_model(
    source: str | Path | bytes | ModelProto,
    weights_folder: str | Path | None = None,
    *,
    weights_may_be_absent: bool = False,
) -> LoadedModel:
    """Read a model from a path, bytes or a ``ModelProto`` and check what it says of itself."""
    file, folder = UNNAMED, None
    blobs: Mapping[int, Blob] = {}
    if isinstance(source, ModelProto):
        proto = source
    elif isinstance(source, bytes | bytearray | memoryview):
        content = bytes(source)
        proto, spans = parse_model(content, "these bytes")
        blobs = {position: Blob(content, *span) for position, span in spans.items()}
    elif isinstance(source, str | Path):
        path = Path(source)
        proto, blobs = _load_file(path)
        file, folder = str(path), path.parent
    else:
        raise InputError(
            "from_onnx needs a model",
            expected="a path, bytes or an onnx.ModelProto",
            found=type(source).__name__,
        )
    if weights_folder is not None:
        folder = Path(weights_folder)
    if not proto.HasField("graph"):
        raise InputError(f"{file} holds no graph", expected="an ONNX model", found="no graph in it")
    opsets = {**ASSUMED, **opset_versions(proto.opset_import, "the model")}
    if "" not in opsets:
        opsets[""] = _assume_version(proto)
    files = Files(folder, may_be_absent=weights_may_be_absent)
    return LoadedModel(proto, file, files, opsets, _functions(proto), blobs)


def _load_file(path: Path) -> tuple[ModelProto, Mapping[int, Blob]]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} cannot be read", expected="an ordinary file")
        if status.st_size > LARGEST_FILE:
            raise InputError(
                f"{path} is too large for one protobuf file",
                expected="at most 2 GiB",
                hint="save its weights beside it: onnx.save(…, save_as_external_data=True)",
            )
        if status.st_size < MIN_BLOB_BYTES:
            return parse_model(path.read_bytes(), str(path))[0], {}
        opened = OpenFile(path)
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            proto, spans = parse_model(content, str(path))
        return proto, {position: Blob(opened, *span) for position, span in spans.items()}
    except OSError as error:
        raise InputError(f"{path} cannot be read", found=error.strerror or str(error)) from None
    except ValueError as error:  # a null character in the path
        raise InputError(f"{str(path)!r} cannot be read", found=str(error)) from None


def parse_model(content: bytes | mmap.mmap, where: str) -> tuple[ModelProto, Spans]:
    """A model from the bytes of a file, without the tensors that lie at the spans in it."""
    proto = ModelProto()
    small, spans = without_large_tensors(content)
    try:
        proto.ParseFromString(small)
    except DecodeError as error:
        raise InputError(
            f"{where}: this is not an ONNX model, or a damaged one",
            expected="an onnx.ModelProto in binary form",
            found=f"{len(content)} bytes that do not decode: {error}",
        ) from None
    return proto, spans


def canonical_domain(domain: str) -> str:
    """The domain under its one name: ``ai.onnx`` is the empty one."""
    return "" if domain == "ai.onnx" else domain


def opset_versions(imports: object, where: str) -> dict[str, int]:
    """The versions that a model or function imports, by domain."""
    versions: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]  # a repeated OperatorSetIdProto
        domain, version = canonical_domain(entry.domain), int(entry.version)
        newest = NEWEST.get(domain)
        if version < 1:
            raise InputError(
                f"{where} needs an opset that is not known",
                expected=f"version 1 to {newest or 'any'} of {domain or 'ai.onnx'!r}",
                found=f"version {version}",
            )
        if newest is not None and version > newest:
            warn(
                f"{where} needs version {version} of {domain or 'ai.onnx'!r}, and the onnx package "
                f"knows none after {newest}: its ops are read as those of {newest}"
            )
            version = newest
        if versions.get(domain, version) != version:
            warn(
                f"{where} imports the opset {domain or 'ai.onnx'!r} twice, at {versions[domain]} "
                f"and {version}: the last one counts"
            )
        versions[domain] = version
    return versions


def _assume_version(proto: ModelProto) -> int:
    """The opset of a model that imports none: the newest of its time, as its IR version tells."""
    versions = [row[2] for row in onnx.helper.VERSION_TABLE if row[1] <= proto.ir_version]
    version = max(versions, default=1)
    if any(not canonical_domain(node.domain) for node in proto.graph.node):
        warn(
            f"the model imports no opset of 'ai.onnx'; by its IR version {proto.ir_version} it is "
            f"read as one of opset {version}"
        )
    return int(version)


def _functions(proto: ModelProto) -> dict[FunctionKey, FunctionProto]:
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in proto.functions:
        key = (canonical_domain(function.domain), function.name, function.overload)
        if key in functions:
            raise InputError(
                f"two functions are called {function.name!r}",
                expected="distinct domain, name and overload",
                found=f"{'.'.join(part for part in key if part)} twice",
            )
        functions[key] = function
    return functions

"""``.mono`` files: a compiled program that another process, or another machine, can load.

An artifact is a bundle in a zip (see ``container``). It is written whole or not at all, checked
whole before any of it is used, and it says for which processor it was compiled: code for another
one is refused with a sentence, not with an illegal instruction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from monograph import __version__
from monograph.ir.paths import as_path
from monograph.runtime.atomic import replacing
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.container import (
    ArtifactError,
    open_regular,
    read_container,
    write_container,
)
from monograph.targets.base import TargetRecord

__all__ = [
    "ArtifactError",
    "check_processor",
    "check_target",
    "describe_target",
    "read_artifact",
    "target_of",
    "write_artifact",
]


def write_artifact(path: str | os.PathLike[str], bundle: Bundle) -> Path:
    """Write a bundle to ``path``; what was there before is replaced when all of it is on disk."""
    target = as_path(path)
    if target.is_dir():
        raise ArtifactError(f"{target} is a folder", expected="the name of a file to write")
    try:
        with replacing(target, 0o666) as file:
            write_container(file, bundle)
    except OSError as problem:
        raise ArtifactError(
            f"{target} cannot be written: {problem.strerror}",
            hint="choose a folder that exists, is yours to write to, and has room",
        ) from problem
    return target


def read_artifact(path: str | os.PathLike[str], *, verify: bool = True) -> Bundle:
    """Read what ``write_artifact`` wrote; an ``ArtifactError`` says what is wrong with the file.

    Arrays are mapped from the file, which must not be changed in place while they are in use.
    ``verify=False`` does not read them to check their digest; all else is checked all the same.
    """
    source = as_path(path)
    try:
        with open_regular(source, follow_links=True) as file:
            return read_container(file, str(source), verify=verify)
    except OSError as problem:
        raise ArtifactError(f"{source} cannot be read: {problem.strerror}") from problem


def describe_target(triple: str, cpu: str, features: str, name: str = "cpu") -> dict[str, Json]:
    """What a manifest says of the machine that its code is for, under the key ``target``.

    ``features`` is LLVM's list, ``+avx2,-avx512f``; those with a plus are what the code needs.
    """
    return {
        "monograph": __version__,
        "name": name,
        "triple": triple,
        "cpu": cpu,
        "features": features,
    }


def target_of(manifest: Mapping[str, Json]) -> TargetRecord:
    """What the code of an artifact was compiled for; an error if another version compiled it.

    What compiled code and the runtime expect of each other may change with each version.
    """
    described = manifest.get("target")
    target = described if isinstance(described, Mapping) else {}
    theirs = [target.get(name) for name in ("monograph", "triple", "cpu", "features")]
    if not all(isinstance(value, str) for value in theirs):
        raise ArtifactError(
            "the artifact does not say for which machine it was compiled",
            hint="save the program again",
        )
    version, triple, cpu, features = map(str, theirs)
    if version != __version__:
        raise ArtifactError(
            "the artifact was saved by another version of Monograph",
            expected=f"Monograph {__version__}",
            found=f"Monograph {version}",
            hint="save the program again with this version, or install the other one",
        )
    name = target.get("name", "cpu")
    return TargetRecord(name if isinstance(name, str) else "cpu", triple, cpu, features)


def check_target(manifest: Mapping[str, Json], triple: str, cpu: str, features: str) -> None:
    """Refuse code that this processor cannot run, by the target that the manifest describes.

    The system must be the same (its vendor and version aside), this processor must have every
    feature that the code was compiled for, and the code must come from this version of Monograph.
    """
    check_processor(target_of(manifest), TargetRecord("cpu", triple, cpu, features))


def check_processor(record: TargetRecord, here: TargetRecord) -> None:
    """Refuse code for a processor that has what this one lacks, or for another system."""
    if _system(record.triple) != _system(here.triple):
        raise ArtifactError(
            "the artifact was compiled for another system",
            expected=f"{here.triple} ({here.cpu})",
            found=f"{record.triple} ({record.cpu})",
            hint="save the program again on a machine like this one",
        )
    missing = sorted(_list_required(record.features) - _list_required(here.features))
    if missing:
        raise ArtifactError(
            f"the artifact was compiled for {record.cpu}; this machine's processor is {here.cpu}",
            expected=f"a processor with {', '.join(missing)}",
            found=f"{here.cpu}, which lacks {'it' if len(missing) == 1 else 'them'}",
            hint="save the program again on this machine, or for a processor that both resemble",
        )


def _system(triple: str) -> tuple[str, ...]:
    """The parts of a triple that matter to code: not the vendor, nor the system's version."""
    processor, *rest = triple.lower().split("-")
    names = {"arm64": "aarch64", "amd64": "x86_64"}
    return (names.get(processor, processor), *(part.rstrip(".0123456789") for part in rest[1:]))


def _list_required(features: str) -> set[str]:
    return {part[1:] for part in features.split(",") if part.startswith("+")}

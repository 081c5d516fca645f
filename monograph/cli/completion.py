"""What a shell completes as the value of an option: names that the registries know."""

from __future__ import annotations


def levels(incomplete: str) -> list[str]:
    """The optimisation levels."""
    from monograph.passes.pipeline import LEVELS

    return [name for name in LEVELS if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """What one can compile for."""
    from monograph.targets.names import target_names

    return [name for name in target_names() if name.startswith(incomplete)]


def passes(incomplete: str) -> list[str]:
    """The last pass of a list like ``cse,dce``."""
    from monograph.passes.base import all_passes

    return _last_of_list(incomplete, list(all_passes()))


def peers(incomplete: str) -> list[str]:
    """The last of those to compare with, in a list like ``onnxruntime,torch``."""
    from monograph.inspect.peers import PEERS

    return _last_of_list(incomplete, PEERS)


def formats(incomplete: str) -> list[str]:
    """What a model is written as."""
    from monograph.inspect.conversion import WRITABLE

    return [name for name in WRITABLE if name.startswith(incomplete)]


def views(incomplete: str) -> list[str]:
    """The last IR of a list like ``fx,onnx``."""
    from monograph.inspect.views import VIEWS

    return _last_of_list(incomplete, tuple(VIEWS))


def families(incomplete: str) -> list[str]:
    """The families of ops."""
    from monograph.ir.op import Family

    return [each.value for each in Family if each.value.startswith(incomplete)]


def ops(incomplete: str) -> list[str]:
    """The names of ops."""
    from monograph.ir.op import registry

    return [name for name in sorted(registry()) if name.startswith(incomplete)]


def schemes(incomplete: str) -> list[str]:
    """The schemes of quantization."""
    from monograph.quantization.scheme import SCHEMES

    return [name for name in SCHEMES if name.startswith(incomplete)]


def _last_of_list(incomplete: str, names: list[str] | tuple[str, ...]) -> list[str]:
    """Names for what stands behind the last comma, with what stands before it."""
    done, comma, last = incomplete.rpartition(",")
    given = done.split(",")
    return [f"{done}{comma}{name}" for name in names if name.startswith(last) and name not in given]

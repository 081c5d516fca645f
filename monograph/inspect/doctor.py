"""What this installation consists of, what the machine can do, and what is wrong with either.

``examine`` looks, and changes nothing but the disk cache. What it finds is a list of facts by
topic, and of *ailments*: a problem (something does not work) or a remark (something is slower, or
less, than it could be), each with what to do about it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from importlib import metadata
from pathlib import Path

import numpy as np

from monograph import __version__
from monograph.api import compile as compile_model
from monograph.config import Config, processor_count
from monograph.dataclass import dataclass
from monograph.entry_points import EntryGroup, EntryPointWarning, entry_points, load_entry_points
from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.inspect.cached import size_text
from monograph.inspect.measure import busy_note
from monograph.inspect.page import count, row, wrap
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret
from monograph.progress import announce
from monograph.runtime.cache import default_folder, open_cache
from monograph.targets.cpu.machine import Machine, host

CORE = ("llvmlite", "numpy", "ml_dtypes", "safetensors", "rich", "typer")
EXTRAS: Mapping[str, str] = {"torch": "torch", "onnx": "onnx", "jax": "jax", "triton": "gpu"}
"""Packages of the frontends and targets, and the extra that brings each."""
PEERS = ("onnxruntime", "openvino", "iree-base-compiler")
"""What ``bench`` and ``compare`` can hold a program against, besides torch and JAX."""
GROUPS: tuple[EntryGroup, ...] = (
    *("monograph.passes", "monograph.ops", "monograph.targets", "monograph.devices"),
)
TESTING = (
    *("MONOGRAPH_VECTOR_BYTES", "MONOGRAPH_VECTOR_REGISTERS", "MONOGRAPH_MATRIX_TILES"),
    "MONOGRAPH_FENCES",
)
"""Settings that make programs slower, and are for testing."""
MOST_ERROR = 1e-5
"""How far the self-test's answer may be from the interpreter's."""


@dataclass(frozen=True)
class Ailment:
    """Something to mend (a problem), or to know (a remark), and what to do about it."""

    is_problem: bool
    what: str
    advice: str


@dataclass
class Examination:
    """Facts by topic, in the order in which they were found, and what is wrong."""

    facts: dict[str, str] = field(default_factory=dict)
    ailments: list[Ailment] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether everything works."""
        return not any(each.is_problem for each in self.ailments)

    def problem(self, what: str, advice: str) -> None:
        """Note something that does not work."""
        self.ailments.append(Ailment(True, what, advice))

    def remark(self, what: str, advice: str) -> None:
        """Note something that could be better."""
        self.ailments.append(Ailment(False, what, advice))

    def __str__(self) -> str:
        lines = [line for topic, text in self.facts.items() for line in row(topic, text)]
        for each in sorted(self.ailments, key=lambda each: not each.is_problem):
            label = "problem: " if each.is_problem else "remark: "
            lines += ["", *wrap(label, each.what), *wrap("  do: ", each.advice)]
        problems = sum(each.is_problem for each in self.ailments)
        verdict = f"{count(problems, 'problem')} to mend" if problems else "everything works"
        return "\n".join([*lines, "", f"{verdict} ({self.seconds:.1f} s)"])


def examine(*, measures: bool = True) -> Examination:
    """Look at everything; without ``measures`` the machine's bandwidth and peak are left out."""
    found = Examination()
    started = time.perf_counter()
    steps: list[tuple[str, Callable[[Examination], None]]] = [
        ("packages", _packages),
        ("entry points", _entry_points),
        ("settings", _settings),
        ("processor", _processor),
        ("GPU", _gpu),
        ("cache", _cache),
        *([("roofline", _roofline)] if measures else []),
        ("self-test", _self_test),
    ]
    for name, look in steps:
        announce(name)
        try:
            look(found)
        except MonographError as error:
            found.problem(f"{name}: {error.message}", error.hint or error.expected or "see above")
    found.seconds = time.perf_counter() - started
    return found


def describe_installation() -> dict[str, str]:
    """What figures depend on, by topic: versions and hardware, and no folder of this machine."""
    found = Examination()
    for look in (_packages, _processor, _gpu):
        look(found)
    found.facts["python"] = f"{platform.python_version()}, {platform.platform()}"
    found.facts["monograph"] = __version__
    return found.facts


def _packages(found: Examination) -> None:
    found.facts["monograph"] = f"{__version__}, in {Path(__file__).resolve().parents[1]}"
    found.facts["python"] = f"{platform.python_version()} ({sys.executable}), {platform.platform()}"
    from llvmlite import binding

    llvm = ".".join(map(str, binding.llvm_version_info))
    found.facts["packages"] = f"{_versions(CORE)} (LLVM {llvm})"
    found.facts["extras"] = _versions(EXTRAS)
    found.facts["peers"] = _versions(PEERS)
    for name, extra in EXTRAS.items():
        if _version(name) is None:
            found.remark(f"{name} is not installed", f"pip install 'monograph[{extra}]', if wanted")
    for name, least in _requirements().items():
        version = _version(name)
        if version is not None and _numbers(version) < _numbers(least):
            found.problem(
                f"{name} {version} is too old", f"pip install '{name}>={least}': that is the oldest"
            )


def _requirements() -> dict[str, str]:
    """The oldest version of each package that Monograph asks for."""
    try:
        lines = metadata.requires("monograph") or []
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return {}
    matches = (re.match(r"([\w.-]+)\s*>=\s*([\d.]+)", line) for line in lines)
    return {match[1]: match[2] for match in matches if match is not None}


def _versions(names: Iterable[str]) -> str:
    versions = ((name, _version(name)) for name in names)
    return ", ".join(f"{name} {version}" if version else f"no {name}" for name, version in versions)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _entry_points(found: Examination) -> None:
    brought = []
    for group in GROUPS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", EntryPointWarning)
            loaded = load_entry_points(group)
        brought += [f"{group.partition('.')[2]}: {name}" for name in loaded]
        for each in caught:
            found.problem(str(each.message).replace("\n", ";"), "mend or uninstall that package")
        assert len(loaded) + len(caught) >= len(entry_points(group))
    found.facts["entry points"] = ", ".join(brought) or "none"


def _settings(found: Examination) -> None:
    given = {name: text for name, text in os.environ.items() if name.startswith("MONOGRAPH_")}
    found.facts["settings"] = ", ".join(f"{name}={text}" for name, text in given.items()) or "none"
    Config.from_environment()  # an error if one of them is wrong
    for name in TESTING:
        if name in given:
            found.remark(f"{name} is set, which makes programs slower", f"unset {name}")


def _processor(found: Examination) -> None:
    machine = host()
    found.facts["processor"] = f"{machine.cpu} ({machine.triple})"
    dots = ", ".join(f"{dot.function}, {dot.steps} at a time" for dot in machine.dots.values())
    found.facts["compiled for"] = (
        f"vectors of {machine.vector_bytes} bytes, {machine.registers} registers; "
        f"{', '.join(_features(machine))}; integer products: {dots or 'one at a time'}; "
        f"matrix unit: {machine.tile_unit.value}"
    )
    caches = (machine.l1, machine.l2, machine.l3)
    found.facts["data caches"] = ", ".join(
        f"L{level} {size_text(size)}" for level, size in enumerate(caches, 1)
    )
    threads, processors = Config.from_environment().threads, processor_count()
    system = os.cpu_count() or processors
    found.facts["threads"] = f"{threads}; {processors} of {system} processors may be used"
    if threads > processors:
        found.remark(
            f"{threads} threads share {count(processors, 'processor')}",
            f"MONOGRAPH_THREADS={processors}, or none",
        )
    busy = busy_note()
    if busy is not None:
        found.remark(busy.partition(":")[0], "figures are too low; look again when it is idle")


INTERESTING = (
    *("avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "avxvnni", "amx-tile"),
    *("neon", "dotprod", "bf16", "i8mm", "sve", "v"),
)
"""The features that a person who knows processors asks for."""


def _features(machine: Machine) -> Iterator[str]:
    present = set(machine.features.split(","))
    return (name for name in INTERESTING if f"+{name}" in present)


def _gpu(found: Examination) -> None:
    names = _cuda_devices()
    if Path("/dev/kfd").exists():
        names.append("an AMD GPU (/dev/kfd)")
    found.facts["GPU"] = ", ".join(names) or "none that a driver knows"
    if names and _version("triton") is None:
        found.remark("there is a GPU, but no Triton", "pip install 'monograph[gpu]'")


def _cuda_devices() -> list[str]:
    """The names of the GPUs that NVIDIA's driver knows, asked of the driver itself."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver is installed
        return []
    number = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)):
        return []
    names = []
    for index in range(number.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(200)
        if not driver.cuDeviceGet(ctypes.byref(device), index):
            driver.cuDeviceGetName(name, len(name), device)
            names.append(name.value.decode(errors="replace"))
    return names


def _cache(found: Examination) -> None:
    config = Config.from_environment()
    cache = open_cache(config)
    if cache is None:
        where = config.cache_dir or default_folder()
        found.facts["cache"] = f"off; it would be {where}"
        found.remark("the disk cache is off", "unset MONOGRAPH_CACHE: second starts are quicker")
        return
    reason = cache.unusable()
    if reason is not None:
        found.facts["cache"] = f"{cache.folder}: {reason}"
        advice = "chmod 700 it if it is yours, or name another folder by MONOGRAPH_CACHE_DIR"
        found.problem(f"the cache folder {cache.folder} cannot be used: {reason}", advice)
        return
    entries = cache.entries()
    total = size_text(sum(entry.nbytes for entry in entries))
    found.facts["cache"] = f"{cache.folder}: {count(len(entries), 'file')}, {total}"
    damaged = sum(entry.kind is None for entry in entries)
    if damaged:
        what = f"{count(damaged, 'file')} in the cache cannot be read"
        found.remark(what, "monograph cache prune --older-than 30d removes damaged files too")


def _roofline(found: Examination) -> None:
    from monograph.inspect.roofline import load_or_measure_roofline

    found.facts["measured"] = str(load_or_measure_roofline())


def _self_test(found: Examination) -> None:
    """Compile a small program without the cache, and hold it against the interpreter."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((37, 64), (64, 29))]
    graph = trace(_small_model, "f32[37, 64]", "f32[64, 29]")
    started = time.perf_counter()
    compiled = compile_model(graph, cache=False, strict=True)
    spent = time.perf_counter() - started
    answer = np.asarray(compiled(*arrays))
    expected = np.asarray(interpret(graph, arrays)[0])
    error = float(np.linalg.norm(answer - expected) / np.linalg.norm(expected))
    told = f"a product and a softmax: compiled in {spent * 1e3:.0f} ms, error {error:.1e}"
    found.facts["self-test"] = told
    if not error <= MOST_ERROR:
        found.problem(
            f"the self-test's answer is wrong by {error:.1e}",
            "monograph validate says of a model whether its answers are right; please report this",
        )


def _small_model(x: Value, weight: Value) -> Value:
    from monograph import functional as F

    return F.softmax(F.tanh(x @ weight), axis=-1)

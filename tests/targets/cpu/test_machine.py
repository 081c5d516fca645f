"""The processor: what is known of it, and code that is loaded and let go."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import replace

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.ir.types import type_of_array
from monograph.targets.cpu import machine as module
from monograph.targets.cpu.machine import (
    OTHERS,
    Library,
    compile_text,
    function_pointer,
    host,
    machine_named,
)

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}\n"


def test_the_host_is_described_once() -> None:
    assert host() is host()
    assert machine_named("host") is host()
    assert machine_named("cpu") is host()


def test_vectors_and_caches_have_plausible_sizes() -> None:
    found = host()
    assert found.vector_bytes in (16, 32, 64)
    assert found.registers in (16, 32)
    assert 8 << 10 <= found.l1 <= found.l2 <= found.l3


def test_the_environment_says_what_vectors_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MONOGRAPH_VECTOR_BYTES", "MONOGRAPH_VECTOR_REGISTERS"):
        monkeypatch.delenv(name, raising=False)
    own = host()
    for count in (16, 32, 64):
        monkeypatch.setenv("MONOGRAPH_VECTOR_BYTES", str(count))
        assert host() == replace(own, vector_bytes=count)
    monkeypatch.delenv("MONOGRAPH_VECTOR_BYTES")
    for count in (16, 32):
        monkeypatch.setenv("MONOGRAPH_VECTOR_REGISTERS", str(count))
        assert host() == replace(own, registers=count)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_vectors_of_any_width_run(vector_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_VECTOR_BYTES", str(vector_bytes))
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    executable = compile_graph(trace(lambda x: x * x + x, type_of_array(x)), Options(cache=False))
    np.testing.assert_array_equal(executable.run([x])[0], x * x + x)


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [
        ("x86_64-linux", {"avx512f", "avx2"}, (64, 32)),
        ("x86_64-linux", {"avx2"}, (32, 16)),
        ("x86_64-linux", {"sse2"}, (16, 16)),
        ("aarch64-linux", {"neon"}, (16, 32)),
    ],
)
def test_vectors_follow_from_the_features(
    triple: str, features: set[str], expected: tuple[int, int]
) -> None:
    assert module._vectors(triple, features) == expected


@pytest.mark.parametrize(("text", "size"), [("32K", 32 << 10), ("2M", 2 << 20), ("512", 512)])
def test_cache_sizes_are_read(text: str, size: int) -> None:
    assert module._bytes(text) == size


@pytest.mark.parametrize("name", OTHERS)
def test_other_chips_are_described_by_name(name: str) -> None:
    assert machine_named(name).vector_bytes == OTHERS[name][3]


def test_a_name_that_is_no_chip_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="aarch64"):
        machine_named("pdp11")


def test_compiled_code_runs() -> None:
    library = Library(compile_text(ADD, host()).object)
    add = function_pointer(library.address("add"), ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert callable(add)
    assert add(2, 40) == 42


def test_a_function_that_is_not_there_is_an_error() -> None:
    library = Library(compile_text(ADD, host()).object)
    with pytest.raises(InputError, match="no function 'subtract'"):
        library.address("subtract")


def test_listings_come_only_when_they_are_asked_for() -> None:
    assert compile_text(ADD, host()).assembly is None
    shown = compile_text(ADD, host(), listings=True)
    assert "add" in (shown.optimized or "") and "add" in (shown.assembly or "")


def test_the_same_text_gives_the_same_object() -> None:
    assert compile_text(ADD, host()).object == compile_text(ADD, host()).object


def test_libraries_of_equal_names_do_not_meet() -> None:
    other = ADD.replace("add i64 %a", "mul i64 %a")
    libraries = [Library(compile_text(text, host()).object) for text in (ADD, other)]
    results = []
    for library in libraries:
        run = function_pointer(
            library.address("add"), ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
        )
        assert callable(run)
        results.append(run(6, 7))
    assert results == [13, 42]


def test_code_is_unloaded_with_the_library() -> None:
    maps = "/proc/self/maps"
    if not os.path.exists(maps):
        pytest.skip("memory maps are not listed on this system")

    def executable_pages() -> int:
        with open(maps) as file:
            return sum(" r-xp 00000000 00:00 0" in line for line in file)

    code = compile_text(ADD, host()).object
    gc.collect()
    before = executable_pages()
    for _ in range(50):
        Library(code)
    gc.collect()
    assert executable_pages() < before + 25

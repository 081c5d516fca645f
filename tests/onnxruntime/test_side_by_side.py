"""Programs written for ONNX Runtime do the same with ``monograph.onnxruntime``."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import monograph

onnxruntime = pytest.importorskip("onnxruntime")
import monograph.onnxruntime as ours  # noqa: E402
import monograph.onnxruntime.capi.onnxruntime_pybind11_state  # noqa: E402
from tests.onnxruntime.behaviours import BEHAVIOURS, X, model  # noqa: E402


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_both_do_the_same(name: str) -> None:
    onnxruntime.set_default_logger_severity(4)
    assert BEHAVIOURS[name](ours) == BEHAVIOURS[name](onnxruntime)


def test_options_without_an_effect_are_named() -> None:
    options = ours.SessionOptions()
    options.inter_op_num_threads = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    with pytest.warns(ours.OptionWarning, match="inter_op_num_threads, session.set_denormal"):
        ours.InferenceSession(model(), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.InferenceSession(model(), ours.SessionOptions())


def test_the_version_is_this_compilers() -> None:
    assert ours.__version__ == ours.get_version_string() == monograph.__version__


def test_libraries_of_others_are_refused() -> None:
    state = ours.capi.onnxruntime_pybind11_state
    with pytest.raises(state.NotImplemented, match="custom ops"):
        ours.SessionOptions().register_custom_ops_library("lib.so")


def test_an_error_names_its_cause() -> None:
    session = ours.InferenceSession(model())
    with pytest.raises(RuntimeError, match=r"is float32\[2, 4\], and the memory .* float32\[9\]"):
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_output("z", ours.OrtValue.ortvalue_from_numpy(np.zeros(9, "f4")))
        session.run_with_iobinding(binding)


def test_onnxruntime_itself_is_not_needed() -> None:
    program = "import sys, monograph.onnxruntime; assert 'onnxruntime' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


GLOBAL_THREADS = """
import importlib, sys
ort = importlib.import_module(sys.argv[1])
from tests.onnxruntime.behaviours import kind, model
ort.set_global_thread_pool_sizes(2, 2)
print(kind(lambda: ort.set_global_thread_pool_sizes(3)))
print(kind(lambda: ort.InferenceSession(model())))
options = ort.SessionOptions()
options.use_per_session_threads = False
print(kind(lambda: ort.InferenceSession(model(), options)))
"""


def test_threads_for_all_sessions_are_chosen_once() -> None:
    """In processes of their own: the number stays for the whole process."""
    words, told = ("Fail", "RuntimeError", "none"), []
    for module in ("monograph.onnxruntime", "onnxruntime"):
        command = [sys.executable, "-W", "error", "-c", GLOBAL_THREADS, module]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told.append([line for line in done.stdout.splitlines() if line in words])
    assert told == [list(words)] * 2


def test_allocators_of_the_program_are_named_as_without_effect() -> None:
    info = ours.OrtMemoryInfo(
        "Cpu", ours.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ours.OrtMemType.DEFAULT
    )
    with pytest.warns(ours.OptionWarning, match="plans the memory"):
        ours.create_and_register_allocator(info, None)

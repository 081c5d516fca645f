"""Programs written for ONNX Runtime do the same with ``monograph.onnxruntime``."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
import monograph.onnxruntime as ours  # noqa: E402
import monograph.onnxruntime.capi.onnxruntime_pybind11_state  # noqa: E402, F401
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

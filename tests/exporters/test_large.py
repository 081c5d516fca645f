"""Models of more than 2 GiB, which no protobuf file can hold: weights beside the model.

The weights are sparse files of zeros with a few numbers in them, memory-mapped on the way in and
copied piece by piece on the way out, so that neither much memory nor much disk is needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from monograph.errors import InputError
from monograph.exporters.onnx import to_onnx
from monograph.frontends.onnx import from_onnx

ROWS, COLUMNS = 600_000, 1024
BYTES = ROWS * COLUMNS * 4
MOST_BYTES = 256 * 2**20
"""What a process may use on top of what it has after its imports."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that gathers rows of a weight of 2.3 GiB and slices another view of the same file."""
    assert BYTES > 2**31
    folder = tmp_path_factory.mktemp("large")
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(BYTES)
        file.seek((ROWS - 1) * COLUMNS * 4)  # beyond 2 GiB, where 32-bit offsets end
        file.write(np.arange(COLUMNS, dtype=np.float32).tobytes())
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    large (int64[n] rows) => (float[n, {COLUMNS}] gathered, float[2, 3] corner)
    <int64[2] starts = {{{ROWS - 2}, 5}}, int64[2] ends = {{{ROWS}, 8}}> {{
        gathered = Gather (weights, rows)
        corner = Slice (weights, starts, ends)
    }}"""
    model = onnx.parser.parse_model(text)
    weights = model.graph.initializer.add(
        name="weights", data_type=onnx.TensorProto.FLOAT, dims=[ROWS, COLUMNS], data_location=1
    )
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(BYTES))):
        weights.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def run_with_little_memory(program: str, *arguments: object) -> str:
    """The output of a program that gets no more than ``MOST_BYTES`` for its data.

    Mapped files do not count: their pages are the system's, to keep or to drop.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{LIMIT}\n{program}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIMIT = f"""
import resource, sys
import numpy as np
import monograph.exporters.onnx.model, monograph.frontends.onnx.importer
from monograph import from_onnx, interpret
from monograph.exporters.onnx import to_onnx

with open("/proc/self/status") as status:
    sizes = dict(line.split(":", 1) for line in status)
now = int(sizes["VmData"].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + {MOST_BYTES}, resource.RLIM_INFINITY))
"""

RUN = f"""
rows, corner = interpret(from_onnx(sys.argv[1]), [np.array([{ROWS - 1}, 0, -1])])
assert rows.dtype == np.float32 and rows.shape == (3, {COLUMNS}), rows
np.testing.assert_array_equal(rows[[0, 2]], np.tile(np.arange({COLUMNS}, dtype="f"), (2, 1)))
assert not rows[1].any()
np.testing.assert_array_equal(corner, [[0, 0, 0], [5, 6, 7]])
print("right")
"""


def test_the_limit_on_memory_is_one(table: Path) -> None:
    with pytest.raises(AssertionError, match="MemoryError"):
        run_with_little_memory(f"np.ones({2 * MOST_BYTES}, np.uint8)")


def test_a_model_over_2_gib_is_imported_and_run(table: Path) -> None:
    assert run_with_little_memory(RUN, table) == "right\n"


def test_a_model_over_2_gib_is_exported_beside_its_weights(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.onnx"
    run_with_little_memory("to_onnx(from_onnx(sys.argv[1]), sys.argv[2])", table, path)
    weights = path.with_name("again.onnx.data")
    assert path.stat().st_size < 10_000
    assert weights.stat().st_size == BYTES
    onnx.checker.check_model(str(path))
    assert run_with_little_memory(RUN, path) == "right\n"
    weights.unlink()


def test_a_model_over_2_gib_does_not_fit_into_one_file(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="do not fit into the model's own file"):
        to_onnx(from_onnx(table), tmp_path / "model.onnx", external_data=False)
    with pytest.raises(InputError, match="need a file of their own"):
        to_onnx(from_onnx(table))
    assert list(tmp_path.iterdir()) == []


def test_a_file_over_2_gib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(InputError, match="too large for one protobuf file") as caught:
        from_onnx(path)
    assert "save_as_external_data" in str(caught.value.hint)

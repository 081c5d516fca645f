"""A saved program is loaded by somebody who has neither the model nor what it was written with."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import monograph
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, MonographError
from monograph.ir.graph import Graph
from monograph.runtime.artifact import ArtifactError, read_artifact, write_artifact
from monograph.runtime.bundle import Bundle
from monograph.runtime.compiled import CompiledFunction, Executable
from monograph.runtime.convention import LoadedModule
from tests.runtime.programs import CASES, Case, floats, layered, let_interpret, same

ROOT = Path(__file__).resolve().parents[2]
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    let_interpret(monkeypatch)


def loaded(path: Path, **options: Any) -> Executable:
    found = monograph.load(path, **options)
    assert isinstance(found, Executable)
    return found


def loaded_module(path: Path) -> LoadedModule:
    found = monograph.load(path)
    assert isinstance(found, LoadedModule)
    return found


def in_another_process(program: str, *arguments: object) -> str:
    """What a program prints in a process that can import neither torch nor onnx."""
    text = """
        import sys
        for name in ("torch", "onnx"):
            sys.modules[name] = None
        import monograph
        import numpy as np
    """
    command = [sys.executable, "-c", textwrap.dedent(text) + textwrap.dedent(program)]
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestRoundTrip:
    @cases
    def test_it_runs_as_before(self, case: Case, tmp_path: Path) -> None:
        executable = compile_graph(case.graph())
        again = loaded(executable.save(tmp_path / "m.mono"))
        for inputs in case.inputs:
            assert same(again.run(inputs), executable.run(inputs))
        assert again.report.fallbacks == executable.report.fallbacks
        assert again.report.specialised == executable.report.specialised

    def test_another_process_loads_it_without_a_framework(self, tmp_path: Path) -> None:
        for name, case in CASES.items():
            if name == "strings":  # npz files hold no strings without pickle
                continue
            executable = compile_graph(case.graph())
            executable.save(tmp_path / f"{name}.mono")
            for number, inputs in enumerate(case.inputs):
                outputs = executable.run(inputs)
                arrays = {f"in{k}": array for k, array in enumerate(inputs)}
                arrays |= {f"out{k}": array for k, array in enumerate(outputs)}
                np.savez(tmp_path / f"{name}.{number}.npz", **arrays)  # type: ignore[arg-type]
        printed = in_another_process(
            """
            from pathlib import Path
            count = 0
            for path in sorted(Path(sys.argv[1]).glob("*.npz")):
                model = monograph.load(path.parent / (path.name.split(".")[0] + ".mono"))
                with np.load(path) as arrays:
                    inputs = [arrays[n] for n in sorted(arrays) if n.startswith("in")]
                    outputs = [arrays[n] for n in sorted(arrays) if n.startswith("out")]
                results = model(*inputs)
                for result, expected in zip(results, outputs, strict=True):
                    assert result.dtype == expected.dtype and result.shape == expected.shape
                    assert result.tobytes() == expected.tobytes(), path
                count += 1
            print(count)
            """,
            tmp_path,
        )
        assert int(printed) == sum(len(case.inputs) for case in CASES.values()) - 1

    @pytest.mark.usefixtures("unverified")
    def test_loading_imports_neither_compiler_nor_frontend(self, tmp_path: Path) -> None:
        path = compile_graph(layered()).save(tmp_path / "m.mono")
        printed = in_another_process(
            """
            model = monograph.load(sys.argv[1])
            model(np.zeros((1, 3, 9, 9), np.float32))
            rooms = ("fusion", "kernel", "passes", "rewrite", "ops", "api")
            unwanted = [f"monograph.{room}" for room in rooms] + ["torch", "onnx"]
            found = [name for name, module in sys.modules.items() if module is not None]
            print([name for name in found if name in unwanted or "frontends" in name])
            """,
            path,
        )
        assert printed == "[]"

    def test_a_function_keeps_its_nesting(self, tmp_path: Path) -> None:
        def function(pair: Any, scale: Any) -> Any:
            a, b = pair["a"], pair["b"]
            return {"sum": a + b, "parts": [a * scale, (b, None)]}

        example = {"a": "f32[3]", "b": "f32[3]"}
        compiled = monograph.compile(function, example, "f32[]")
        assert isinstance(compiled, CompiledFunction)
        again = monograph.load(compiled.save(tmp_path / "f.mono"))
        a, b = floats(3), floats(3)
        result = again({"a": a, "b": b}, np.float32(2))
        assert set(result) == {"sum", "parts"}
        assert same([result["sum"], result["parts"][0]], [a + b, a * np.float32(2)])
        assert isinstance(result["parts"][1], tuple) and result["parts"][1][1] is None
        with pytest.raises(InputError, match="another structure"):
            again(a, b)

    def test_a_named_tuple_loads_as_one(self, tmp_path: Path) -> None:
        class Pair(NamedTuple):
            first: Any
            second: Any

        compiled = monograph.compile(lambda x: Pair(x, x + 1.0), "f32[3]")
        again = monograph.load(compiled.save(tmp_path / "f.mono"))
        x = floats(3)
        result = again(x)
        assert type(result).__name__ == "Pair" and same(result, compiled(x))
        assert same([result.first, result.second], compiled(x))

    def test_state_is_told(self, tmp_path: Path) -> None:
        again = loaded(compile_graph(CASES["updates"].graph()).save(tmp_path / "m.mono"))
        assert again.graph.updates == {1: 1}
        assert [value.name for value in again.graph.inputs] == ["x", "state"]

    @pytest.mark.usefixtures("unverified")
    def test_what_came_from_the_cache_can_be_saved(self, tmp_path: Path) -> None:
        for state in ("miss", "hit"):
            executable = compile_graph(layered(3), Options(cache=True))
            assert executable.report.cache == state
        image = floats(1, 3, 9, 9)
        again = loaded(executable.save(tmp_path / "m.mono"))
        assert same(again.run([image]), compile_graph(layered(3)).run([image]))

    def test_what_was_loaded_can_be_saved(self, tmp_path: Path) -> None:
        case = CASES["interpreted node"]
        first = loaded(compile_graph(case.graph()).save(tmp_path / "1.mono"))
        second = loaded(first.save(tmp_path / "2.mono"))
        assert same(second.run(case.inputs[0]), first.run(case.inputs[0]))

    def test_a_file_in_use_can_be_saved_over(self, tmp_path: Path) -> None:
        path, image = tmp_path / "m.mono", floats(1, 3, 9, 9)
        old, new = compile_graph(layered(0)), compile_graph(layered(1))
        first = loaded(old.save(path))
        second = loaded(new.save(path))
        assert same(first.run([image]), old.run([image]))
        assert same(second.run([image]), new.run([image]))

    def test_weights_are_mapped_not_read(self, tmp_path: Path) -> None:
        again = loaded(compile_graph(layered()).save(tmp_path / "m.mono"), verify=False)
        assert again.code is not None and again.native is not None
        for array in (*again.native.weights.values(), *again.native.prepared().values()):
            assert not array.flags.owndata and not array.flags.writeable
            assert array.ctypes.data % 64 == 0


class TestCalls:
    def test_threads_are_the_loader_s_choice(self, tmp_path: Path) -> None:
        again = loaded(compile_graph(layered()).save(tmp_path / "m.mono"), threads=1)
        assert again.native is not None and again.native.threads == 1

    def test_errors_name_the_input(self, tmp_path: Path) -> None:
        again = loaded(compile_graph(CASES["symbolic"].graph()).save(tmp_path / "m.mono"))
        with pytest.raises(InputError, match=r"%x has the wrong dtype"):
            again(np.zeros((3, 5)))
        with pytest.raises(InputError, match="outside its declared range") as raised:
            again(np.zeros((65, 5), np.float32))
        assert raised.value.expected == "2 <= batch <= 64"
        with pytest.raises(InputError, match="unexpected argument 'y'"):
            again(y=np.zeros((3, 5), np.float32))

    def test_sizes_that_a_rule_refuses_are_refused(self, tmp_path: Path) -> None:
        """Native code would read behind the end: the rules travel with it."""
        graph = Graph()
        x = graph.add_input("x", "f32[n]")
        graph.set_outputs([graph.add("pad_border", x, low=(2,), high=(2,))])
        executable = compile_graph(graph)
        again = loaded(executable.save(tmp_path / "m.mono"))
        row = floats(5)
        assert same(again(row), executable(row))
        for model in (executable, again):
            with pytest.raises(MonographError, match="pad_border"):
                model(floats(2))


class TestRefusal:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return compile_graph(layered()).save(tmp_path / "m.mono")

    def test_damage_is_found_wherever_it_is(self, path: Path) -> None:
        whole = path.read_bytes()
        for place in np.linspace(0, len(whole) - 1, 40).astype(int):
            broken = bytearray(whole)
            broken[place] ^= 0x10
            path.write_bytes(broken)
            with pytest.raises(ArtifactError):
                monograph.load(path)
        path.write_bytes(whole)
        monograph.load(path)

    @pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.9, 0.9999])
    def test_a_file_that_was_cut_short(self, path: Path, share: float) -> None:
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ArtifactError):
            monograph.load(path)

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "m.mono").write_text("not a program")
        with pytest.raises(ArtifactError, match="is not an artifact"):
            monograph.load(tmp_path / "m.mono")
        with pytest.raises(ArtifactError, match="cannot be read"):
            monograph.load(tmp_path / "absent.mono")

    @pytest.mark.parametrize(
        "change, message",
        [
            ({"triple": "aarch64-unknown-linux-gnu"}, "another system"),
            ({"triple": "x86_64-pc-windows-msvc"}, "another system"),
            ({"features": "+sse2,+amx-fp99"}, "amx-fp99"),
            ({"monograph": "0.0.1"}, "another version"),
            ({"features": None}, "for which machine"),
        ],
        ids=str,
    )
    def test_code_for_another_machine(
        self, path: Path, change: dict[str, Any], message: str
    ) -> None:
        bundle = read_artifact(path)
        target = {**bundle.manifest["target"], **change}  # type: ignore[dict-item]
        manifest = {**bundle.manifest, "target": target}
        write_artifact(path, Bundle(manifest, bundle.blobs, bundle.arrays))
        with pytest.raises(ArtifactError) as raised:
            monograph.load(path)
        assert message in str(raised.value)

    @pytest.mark.parametrize(
        "change",
        [
            {"native": "yes"},
            {"signature": {}},
            {"signature": None},
            {"call": {"kind": "sideways"}},
            {"call": []},
            {"report": None},
        ],
        ids=str,
    )
    def test_a_manifest_of_another_kind(self, path: Path, change: dict[str, Any]) -> None:
        bundle = read_artifact(path)
        write_artifact(path, Bundle({**bundle.manifest, **change}, bundle.blobs, bundle.arrays))
        with pytest.raises(ArtifactError, match="cannot be read"):
            monograph.load(path)

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="cannot be written"):
            compile_graph(layered()).save(tmp_path / "absent" / "m.mono")

    @pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
    def test_the_file_is_as_private_as_the_user_makes_files(self, path: Path) -> None:
        mask = os.umask(0)
        os.umask(mask)
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def module(torch: Any) -> Any:
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(196, 2)).eval()


class TestTorch:
    def test_a_module_takes_tensors_and_arrays_alike(
        self, torch: Any, module: Any, tmp_path: Path
    ) -> None:
        x = torch.randn(1, 3, 9, 9)
        compiled = monograph.compile(module, x)
        again = loaded_module(compiled.save(tmp_path / "m.mono"))
        expected = compiled(x)
        tensor, array = again(x), again(x.numpy())
        assert isinstance(tensor, torch.Tensor) and torch.equal(tensor, expected)
        assert isinstance(array, np.ndarray) and same([array], [expected.numpy()])

    def test_bfloat16_tensors_go_in_and_out(self, torch: Any, tmp_path: Path) -> None:
        x = torch.randn(5).bfloat16()
        compiled = monograph.compile(lambda x: x * 2, x)
        found = loaded_module(compiled.save(tmp_path / "m.mono"))(x)
        assert found.dtype is torch.bfloat16 and torch.equal(found, x * 2)

    def test_another_process_runs_it_without_torch(
        self, torch: Any, module: Any, tmp_path: Path
    ) -> None:
        x = torch.ones(1, 3, 9, 9)
        compiled = monograph.compile(module, x)
        path = compiled.save(tmp_path / "m.mono")
        printed = in_another_process(
            "print(monograph.load(sys.argv[1])(np.ones((1, 3, 9, 9), np.float32)).tolist())",
            path,
        )
        assert printed == str(compiled(x).tolist())

    def test_an_op_of_torch_s_own_needs_torch(self, torch: Any, tmp_path: Path) -> None:
        x = torch.rand(4, 4)
        with torch.library._scoped_library("monograph_storing", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
            compiled = monograph.compile(lambda x: torch.ops.monograph_storing.twice(x) + 1, x)
            path = compiled.save(tmp_path / "m.mono")
            assert torch.equal(loaded_module(path)(x), x * 2 + 1)
        printed = in_another_process(
            """
            from monograph.errors import MonographError
            try:
                monograph.load(sys.argv[1])
            except MonographError as error:
                print(error)
            """,
            path,
        )
        assert "torch" in printed and "monograph[torch]" in printed


class TestTorchModules:
    def module(self) -> Any:
        torch = pytest.importorskip("torch")

        class Model(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(4, 3)

            def forward(self, x: Any, pair: Any, *, shift: Any) -> Any:
                y = self.linear(x) + shift
                return {"b": y, "a": (pair["z"] - pair["y"], None), "n": [x.shape[0]]}

        return Model().eval()

    def test_a_loaded_module_is_called_as_the_module_was(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        x, shift = torch.randn(2, 4), torch.randn(3)
        pair = {"z": torch.randn(2), "y": torch.randn(2)}
        model = self.module()
        compiled = monograph.compile(model, x, pair, kwargs={"shift": shift})
        again = loaded_module(compiled.save(tmp_path / "m.mono"))
        found, expected = again(x, pair, shift=shift), model(x, pair, shift=shift)
        assert found.keys() == expected.keys()
        torch.testing.assert_close(found["b"], expected["b"])
        torch.testing.assert_close(found["a"][0], expected["a"][0])
        assert found["a"][1] is None and found["n"] == [2]

    def test_an_argument_that_is_a_number_has_one_value(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")

        def scaled(x: Any, by: Any, shift: Any = None) -> Any:
            return x * by if shift is None else x * by + shift

        x = torch.randn(3)
        compiled = monograph.compile(scaled, x, 2, None)
        for call in (compiled, loaded_module(compiled.save(tmp_path / "m.mono"))):
            assert torch.equal(call(x, 2, None), x * 2)
            with pytest.raises(
                MonographError, match=r"one value of by\n  expected 2\n  found    3"
            ):
                call(x, 3, None)
            with pytest.raises(MonographError, match=r"found    2\.0"):
                call(x, 2.0, None)
            with pytest.raises(MonographError):
                call(x, 2, x)

    def test_it_takes_and_returns_arrays_without_torch(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        pair = {"z": torch.ones(2), "y": torch.zeros(2)}
        compiled = monograph.compile(
            self.module(), torch.ones(2, 4), pair, kwargs={"shift": torch.ones(3)}
        )
        path = compiled.save(tmp_path / "m.mono")
        printed = in_another_process(
            """
            module = monograph.load(sys.argv[1])
            one = np.ones((2, 4), np.float32)
            pair = {"y": np.zeros(2, np.float32), "z": np.ones(2, np.float32)}
            found = module(one, pair, shift=np.ones(3, np.float32))
            print(found["a"][0].tolist(), found["b"].shape, found["n"])
            """,
            path,
        )
        assert printed == "[1.0, 1.0] (2, 3) [2]"

    def test_other_arguments_are_an_error_that_shows_the_nesting(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        pair = {"z": torch.ones(2), "y": torch.zeros(2)}
        compiled = monograph.compile(
            self.module(), torch.ones(2, 4), pair, kwargs={"shift": torch.ones(3)}
        )
        again = loaded_module(compiled.save(tmp_path / "m.mono"))
        with pytest.raises(InputError, match=r"\(\(\*, {y: \*, z: \*}\), {shift: \*}\)"):
            again(torch.ones(2, 4), pair["z"], shift=torch.ones(3))
        with pytest.raises(InputError, match="missing arguments: 'pair'"):
            again(torch.ones(2, 4), shift=torch.ones(3))


def test_code_with_other_vectors_loads_on_the_same_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [floats(1, 3, 9, 9)]
    for saved, loading in (("64", "16"), ("16", "64")):
        monkeypatch.setenv("MONOGRAPH_VECTOR_BYTES", saved)
        executable = compile_graph(layered(), Options(cache=False))
        executable.save(tmp_path / "saved.mono")
        monkeypatch.setenv("MONOGRAPH_VECTOR_BYTES", loading)
        assert same(loaded(tmp_path / "saved.mono").run(inputs), executable.run(inputs))


def test_the_names_of_outputs_come_back_and_are_saved_again(tmp_path: Path) -> None:
    graph = CASES["updates"].graph()
    executable = compile_graph(graph)
    again = loaded(executable.save(tmp_path / "once.mono"))
    twice = loaded(again.save(tmp_path / "twice.mono"))
    expected = tuple((value.name, str(value.type)) for value in graph.outputs)
    assert expected and again.outputs == twice.outputs == expected

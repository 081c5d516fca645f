"""Artifacts come back as they were written, or are refused."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from monograph import __version__
from monograph.errors import InputError, MonographError
from monograph.ir.types import i4, string
from monograph.runtime import container
from monograph.runtime.artifact import (
    ArtifactError,
    check_target,
    describe_target,
    read_artifact,
    write_artifact,
)
from monograph.runtime.bundle import Bundle
from monograph.runtime.tensors import Entry, lay_out
from tests.runtime.bundles import array_of_every_dtype, equal, small_bundle

LINUX = "x86_64-unknown-linux-gnu"
FOR_ZEN_3 = {"target": describe_target(LINUX, "znver3", "+avx2,+fma,-avx512f")}
MAPPED_FROM_THE_FILE = ("f64", "f32", "bf16", "f8e4m3fn", "c64", "c128", "i8", "u64", "bool")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "small.mono", small_bundle())


def refused(path: Path) -> ArtifactError:
    """The error that reading a file gives."""
    with pytest.raises(ArtifactError) as caught:
        read_artifact(path)
    return caught.value


class TestRoundTrip:
    def test_every_dtype_comes_back_to_the_bit(self, tmp_path: Path) -> None:
        bundle = Bundle({}, {}, array_of_every_dtype())
        assert equal(read_artifact(write_artifact(tmp_path / "a.mono", bundle)), bundle)

    @pytest.mark.parametrize(
        "array",
        [
            np.zeros((0, 4), np.float32),
            np.float32(3).reshape(()),
            np.arange(12.0).reshape(3, 4).T,
            np.arange(12.0)[::-2],
            np.broadcast_to(np.float32(1), (3, 5)),
            np.arange(3, dtype=">i4"),
            np.array([np.nan, -0.0, np.inf], np.float16),
            np.array([], np.object_),
        ],
        ids=[
            "empty",
            "0d",
            "transposed",
            "strided",
            "broadcast",
            "big-endian",
            "nan",
            "no strings",
        ],
    )
    def test_odd_arrays_come_back(self, tmp_path: Path, array: np.ndarray) -> None:
        bundle = Bundle({}, {}, {"before": np.zeros(1, np.int8), "x": array})
        found = read_artifact(write_artifact(tmp_path / "a.mono", bundle)).arrays["x"]
        native = array.astype(array.dtype.newbyteorder("="))
        assert found.dtype == native.dtype
        assert found.shape == array.shape
        assert found.tolist() == native.tolist() or found.tobytes() == native.tobytes()

    def test_an_empty_bundle_comes_back(self, tmp_path: Path) -> None:
        assert equal(read_artifact(write_artifact(tmp_path / "a.mono", Bundle({}))), Bundle({}))

    def test_manifest_and_blobs_come_back(self, tmp_path: Path) -> None:
        manifest = {
            "none": None,
            "text": 'größer \ud800 \0 " \\ \u2028',
            "ints": [0, -1, 2**64 - 1, True, False],
            "floats": [0.1, -0.0, 1e-310, 1.7976931348623157e308],
            "nested": {"": [[], {}, [[1]]]},
        }
        bundle = Bundle(manifest, {"b/größer.ir": b"", "a": bytes(range(256)) * 9})
        found = read_artifact(write_artifact(tmp_path / "a.mono", bundle))
        assert equal(found, bundle)
        assert repr(found.manifest) == repr(manifest)

    def test_names_that_the_format_keeps_for_itself_come_back(self, tmp_path: Path) -> None:
        names = ("__metadata__", "___metadata__", "__padding__.1", "_x", "a/../b", "größer", " ")
        bundle = Bundle({}, {}, {name: np.array(name, np.object_) for name in names})
        assert equal(read_artifact(write_artifact(tmp_path / "a.mono", bundle)), bundle)

    def test_the_same_bundle_gives_the_same_file(self, tmp_path: Path) -> None:
        one, other = (write_artifact(tmp_path / name, small_bundle()) for name in ("a", "b"))
        assert one.read_bytes() == other.read_bytes()

    @pytest.mark.parametrize(
        "bundle",
        [
            Bundle({"x": (1, 2)}),
            Bundle({"x": float("nan")}),
            Bundle({"x": 2**64}),
            Bundle({"x": [{1: 2}]}),  # type: ignore[dict-item]
            Bundle({"x": np.float64(1)}),
            Bundle({}, {"../x": b""}),
            Bundle({}, {"/x": b""}),
            Bundle({}, {"C:x": b""}),
            Bundle({}, {"a\\b": b""}),
            Bundle({}, {"a//b": b""}),
            Bundle({}, {"": b""}),
            Bundle({}, {"x\n": b""}),
            Bundle({}, {"manifest.json": b""}),
            Bundle({}, {"weights.safetensors": b""}),
            Bundle({}, {"x" * 2000: b""}),
            Bundle({}, {}, {"\ud800": np.zeros(1)}),
            Bundle({}, {}, {"x": np.array(["\ud800"], np.object_)}),
            Bundle({}, {}, {"x": np.zeros(1, "M8[s]")}),
        ],
    )
    def test_what_would_not_come_back_is_refused(self, tmp_path: Path, bundle: Bundle) -> None:
        with pytest.raises(InputError):
            write_artifact(tmp_path / "a.mono", bundle)
        assert list(tmp_path.iterdir()) == []


class TestMapping:
    def test_arrays_are_mapped_aligned_and_read_only(self, tmp_path: Path) -> None:
        path = write_artifact(tmp_path / "a.mono", Bundle({}, {"o": b"1"}, array_of_every_dtype()))
        contents = path.read_bytes()
        arrays = read_artifact(path).arrays
        assert not any(array.flags.writeable for array in arrays.values())
        for name in MAPPED_FROM_THE_FILE:
            assert arrays[name].ctypes.data % 64 == 0
            assert not arrays[name].flags.owndata
            assert contents.find(arrays[name].tobytes()) % 64 == 0 or name == "bool"

    def test_arrays_outlive_the_file(self, artifact: Path) -> None:
        arrays = read_artifact(artifact).arrays
        write_artifact(artifact, Bundle({}))
        artifact.unlink()
        assert arrays["w"].tolist() == [0, 1, 2, 3, 4]

    def test_an_artifact_can_be_saved_over_itself(self, artifact: Path) -> None:
        write_artifact(artifact, read_artifact(artifact))
        assert equal(read_artifact(artifact), small_bundle())

    def test_without_verify_only_the_arrays_are_trusted(self, artifact: Path) -> None:
        contents = bytearray(artifact.read_bytes())
        place = contents.index(np.arange(5, dtype=np.float32).tobytes())
        contents[place + 4] ^= 1
        artifact.write_bytes(contents)
        assert "weights.safetensors" in str(refused(artifact))
        assert read_artifact(artifact, verify=False).arrays["w"][1] != 1
        contents[contents.index(b"\x7fELF")] ^= 1
        artifact.write_bytes(contents)
        with pytest.raises(ArtifactError, match="is damaged"):
            read_artifact(artifact, verify=False)


class TestOtherTools:
    def test_zip_tools_read_it(self, tmp_path: Path) -> None:
        path = write_artifact(tmp_path / "a.mono", small_bundle())
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert archive.namelist() == [
                *("program.o", "text/graph.ir", "weights.safetensors", "manifest.json"),
            ]
            assert archive.read("text/graph.ir") == b"graph"
            assert json.loads(archive.read("manifest.json"))["manifest"]["entry"] == "main"

    def test_safetensors_reads_the_weights(self, tmp_path: Path) -> None:
        path = write_artifact(tmp_path / "a.mono", Bundle({}, {}, array_of_every_dtype()))
        with zipfile.ZipFile(path) as archive:
            archive.extract("weights.safetensors", tmp_path)
        with safe_open(tmp_path / "weights.safetensors", framework="numpy") as file:
            assert file.get_tensor("f32").tolist() == [[0, 1, 2], [3, 1, 0]]
            assert file.metadata()["packed:i4"] == "i4[2, 3]"

    def test_safetensors_reads_arrays_with_names_of_its_own(self, tmp_path: Path) -> None:
        arrays = {name: np.arange(2.0) for name in ("x", "__metadata__", "__padding__.1")}
        path = write_artifact(tmp_path / "a.mono", Bundle({}, {}, arrays))
        with zipfile.ZipFile(path) as archive:
            archive.extract("weights.safetensors", tmp_path)
        with safe_open(tmp_path / "weights.safetensors", framework="numpy") as file:
            assert file.get_tensor("___metadata__").tolist() == [0, 1]
            assert file.get_tensor("___padding__.1").tolist() == [0, 1]


class TestDamage:
    """Every byte of a file is accounted for, so every change of one is noticed."""

    def test_every_flipped_byte_is_noticed(self, artifact: Path) -> None:
        contents = artifact.read_bytes()
        for place, byte in enumerate(contents):
            for flipped in (byte ^ 0xFF, byte ^ 1 << place % 8):
                self.overwrite(artifact, place, flipped)
                refused(artifact)
            self.overwrite(artifact, place, byte)
        assert equal(read_artifact(artifact), small_bundle())

    def test_every_truncation_is_noticed(self, artifact: Path) -> None:
        for size in reversed(range(artifact.stat().st_size)):
            os.truncate(artifact, size)
            refused(artifact)

    def test_random_mutations_are_noticed(self, artifact: Path) -> None:
        contents = artifact.read_bytes()
        generator = random.Random(1)
        for _ in range(2000):
            mutated = mutate(contents, generator)
            artifact.write_bytes(mutated)
            if mutated != contents:
                refused(artifact)

    @pytest.mark.parametrize("extra", [b"\0", b"PK\5\6" + bytes(18), b"x" * 5000])
    def test_nothing_may_stand_before_or_after(self, artifact: Path, extra: bytes) -> None:
        contents = artifact.read_bytes()
        for longer in (contents + extra, extra + contents):
            artifact.write_bytes(longer)
            refused(artifact)

    @staticmethod
    def overwrite(path: Path, place: int, byte: int) -> None:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))


def mutate(contents: bytes, generator: random.Random) -> bytes:
    """A few cuts, copies, insertions and overwritten bytes."""
    mutated = bytearray(contents)
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(mutated) + 1)
        end = min(len(mutated), start + generator.randint(1, 64))
        match generator.randrange(4):
            case 0:
                del mutated[start:end]
            case 1:
                mutated[start:end] = generator.randbytes(end - start)
            case 2:
                mutated[start:start] = mutated[start:end]
            case 3:
                mutated[start:end] = bytes(end - start)
    return bytes(mutated)


class TestForgery:
    """Files that somebody made on purpose, with digests that are right."""

    @pytest.mark.parametrize(
        "name", ["/etc/passwd", "../evil", "a/../../evil", "a//b", "C:evil", "a\\evil", ".", "x\0y"]
    )
    def test_a_path_that_leads_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setattr(Bundle, "check", lambda self: None)
        path = write_artifact(tmp_path / "a.mono", Bundle({}, {name: b"evil"}))
        assert "a member has the name" in str(refused(path))

    def test_a_member_added_with_a_zip_tool(self, artifact: Path) -> None:
        for name in ("../evil", "extra.o"):
            copy = shutil.copy(artifact, artifact.with_name("copy.mono"))
            with zipfile.ZipFile(copy, "a") as archive:
                archive.writestr(name, b"evil")
            refused(Path(copy))

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_a_second_member_of_one_name(self, artifact: Path) -> None:
        with zipfile.ZipFile(artifact, "a") as archive:
            archive.writestr("program.o", b"evil")
        refused(artifact)

    def test_a_symbolic_link_as_member(self, artifact: Path) -> None:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(artifact, "a") as archive:
            archive.writestr(link, "/etc/passwd")
        refused(artifact)

    def test_a_file_zipped_again_and_compressed(self, artifact: Path) -> None:
        again = artifact.with_name("again.mono")
        with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(again, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
            new.comment = old.comment
        refused(again)

    def test_a_compressed_bomb(self, tmp_path: Path) -> None:
        bomb = tmp_path / "bomb.mono"
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", bytes(1 << 26))
        assert "cut short, or is another zip" in str(refused(bomb))

    @pytest.mark.parametrize(
        "change",
        [
            lambda document: document["members"].append(dict(document["members"][0])),
            lambda document: document["members"][0].update(size=1 << 62),
            lambda document: document["members"][0].update(size=-1),
            lambda document: document["members"][0].update(size=True),
            lambda document: document["members"][0].update(crc32=1 << 32),
            lambda document: document["members"][0].update(name="manifest.json"),
            lambda document: document["members"].reverse(),
            lambda document: document["members"].pop(),
            lambda document: document.update(members=None),
            lambda document: document.update(arrays=[]),
            lambda document: document.update(manifest=[]),
            lambda document: document.update(key="0" * 64),
            lambda document: document["arrays"].append(dict(document["arrays"][0])),
            lambda document: document["arrays"][0].update(name="b"),
            lambda document: document["arrays"][0].update(dtype="f99"),
            lambda document: document["arrays"][0].update(dtype="i32"),
            lambda document: document["arrays"][0].update(dtype="f16"),
            lambda document: document["arrays"][0].update(dtype="string"),
            lambda document: document["arrays"][0].update(shape=[-5]),
            lambda document: document["arrays"][0].update(shape=[5, 0, 1 << 61]),
            lambda document: document["arrays"][0].update(shape=[1] * 70),
            lambda document: document["arrays"][0].update(shape=[5.0]),
            lambda document: document["arrays"][0].update(nbytes=1 << 60),
            lambda document: document["arrays"][0].update(shape=[1 << 61], nbytes=1 << 63),
        ],
    )
    def test_a_manifest_that_lies(
        self,
        artifact: Path,
        monkeypatch: pytest.MonkeyPatch,
        change: Callable[[dict[str, object]], object],
    ) -> None:
        spell = container._canonical

        def lie(document: dict[str, object]) -> bytes:
            change(document)
            return spell(document)

        monkeypatch.setattr(container, "_canonical", lie)
        write_artifact(artifact, small_bundle())
        monkeypatch.undo()
        refused(artifact)

    @pytest.mark.parametrize(
        "text",
        [
            b"[" * 100_000,
            b'{"key":NaN}',
            b'{"key": 1, "key": 2}',
            b"\xff",
            b"1" * 5000,
            b"[]",
            b"{}",
            b'"' + b"x" * (container.LARGEST_MANIFEST + 1) + b'"',
        ],
        ids=["deep", "nan", "twice", "not text", "long int", "list", "empty", "large"],
    )
    def test_a_manifest_that_is_none(
        self, artifact: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
    ) -> None:
        monkeypatch.setattr(container, "_canonical", lambda document: text)
        monkeypatch.setattr(container, "LARGEST_MANIFEST", 1 << 30)
        write_artifact(artifact, small_bundle())
        monkeypatch.undo()
        refused(artifact)

    @pytest.mark.parametrize(
        "respell", [lambda text: text + b" ", lambda text: b'{"key": 1,' + text[1:]]
    )
    def test_a_manifest_in_another_spelling(
        self, artifact: Path, monkeypatch: pytest.MonkeyPatch, respell: Callable[[bytes], bytes]
    ) -> None:
        spell = container._canonical
        monkeypatch.setattr(container, "_canonical", lambda document: respell(spell(document)))
        write_artifact(artifact, small_bundle())
        monkeypatch.undo()
        assert "is not spelled as Monograph spells it" in str(refused(artifact))

    @pytest.mark.parametrize(
        ("lie", "found"),
        [
            (lambda entry: replace(entry, name="same"), "two arrays have one name"),
            (lambda entry: replace(entry, name=""), "describes no array"),
            (lambda entry: replace(entry, dtype=i4), "cannot have 16 bytes"),
            (lambda entry: replace(entry, shape=(5,)), "cannot have 16 bytes"),
            (lambda entry: replace(entry, shape=(2, 1 << 62)), "cannot have the shape"),
            (lambda entry: replace(entry, shape=(1,) * 70), "describes no array"),
            (lambda entry: replace(entry, shape=(2,) + (1,) * 64), "describes no array"),
            (lambda entry: replace(entry, dtype=string), "the array a"),
        ],
    )
    def test_arrays_that_cannot_be(
        self,
        artifact: Path,
        monkeypatch: pytest.MonkeyPatch,
        lie: Callable[[Entry], Entry],
        found: str,
    ) -> None:
        """Manifest and weights tell the same lie, so that no comparison of the two finds it."""
        tell = container._entry
        arrays = {"a": np.arange(2.0), "b": np.arange(2.0)}
        monkeypatch.setattr(container, "_weights", weights_of_two)
        monkeypatch.setattr(container, "_entry", lambda name, array: lie(tell(name, array)))
        write_artifact(artifact, Bundle({}, {}, arrays))
        monkeypatch.undo()
        assert found in str(refused(artifact))

    def test_a_bool_that_is_neither(self, tmp_path: Path) -> None:
        array = np.array([0, 1, 2], np.uint8).view(np.bool_)
        path = write_artifact(tmp_path / "a.mono", Bundle({}, {}, {"x": array}))
        assert "neither 0 nor 1" in str(refused(path))

    @pytest.mark.parametrize(
        "raw", [b"\1", struct.pack("<Q", 9) + b"ab", b"\1" + bytes(7) + b"\xff"]
    )
    def test_strings_that_are_cut_short(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes
    ) -> None:
        monkeypatch.setattr("monograph.runtime.tensors.raw_bytes", lambda array: raw)
        bundle = Bundle({}, {}, {"x": np.array(["a"], np.object_)})
        path = write_artifact(tmp_path / "a.mono", bundle)
        assert "the array x" in str(refused(path))


def weights_of_two(entries: list[Entry], arrays: dict[str, np.ndarray]) -> list[memoryview]:
    """Two arrays of sixteen bytes, under the header that the entries lead to."""
    contents = arrays["a"].tobytes()
    return [memoryview(lay_out(entries).header + contents + bytes(48) + contents)]


class TestErrors:
    def test_they_say_what_the_file_is_instead(self, tmp_path: Path) -> None:
        path = tmp_path / "a.mono"
        with pytest.raises(ArtifactError, match=r"cannot be read: No such file or directory"):
            read_artifact(path)
        path.write_bytes(b"")
        assert "not an artifact" in str(refused(path))
        path.write_bytes(b"\x7fELF" + bytes(1000))
        assert "1,004 bytes of another kind" in str(refused(path))
        assert "is not a file" in str(refused(tmp_path))

    def test_another_format_is_named(self, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(container, "FORMAT", 7)
        write_artifact(artifact, small_bundle())
        monkeypatch.undo()
        error = refused(artifact)
        assert (error.expected, error.found) == ("format 1", "format 7")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "is not a file" in str(refused(tmp_path / "pipe"))

    def test_an_artifact_error_is_a_monograph_error(self) -> None:
        assert issubclass(ArtifactError, MonographError)


class TestWriting:
    def test_a_folder_is_not_overwritten(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="is a folder"):
            write_artifact(tmp_path, small_bundle())

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="cannot be written: No such file"):
            write_artifact(tmp_path / "missing" / "a.mono", small_bundle())

    def test_a_full_disk_leaves_the_old_file(
        self, artifact: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ArtifactError, match="No space left on device"):
            write_artifact(artifact, Bundle({}))
        assert equal(read_artifact(artifact), small_bundle())
        assert list(artifact.parent.iterdir()) == [artifact]

    @pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX's")
    def test_others_may_read_it_as_the_umask_says(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            path = write_artifact(tmp_path / "a.mono", small_bundle())
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    @pytest.mark.slow
    def test_weights_over_four_gibibytes(self, tmp_path: Path) -> None:
        free = shutil.disk_usage(tmp_path).free
        if free < 6 << 30:
            pytest.skip("too little room on the disk")
        large = np.zeros((1 << 32) + 3, np.uint8)
        large[-3:] = (1, 2, 3)
        bundle = Bundle({}, {}, {"large": large, "last": np.arange(3.0)})
        path = write_artifact(tmp_path / "a.mono", bundle)
        del bundle, large
        found = read_artifact(path)
        assert found.arrays["large"][-4:].tolist() == [0, 1, 2, 3]
        assert found.arrays["last"].tolist() == [0, 1, 2]
        with zipfile.ZipFile(path) as archive:
            assert archive.getinfo("weights.safetensors").file_size > 1 << 32
            assert archive.open("manifest.json").read(1) == b"{"
        path.unlink()


class TestTarget:
    def test_the_same_machine_is_accepted(self) -> None:
        check_target(FOR_ZEN_3, LINUX, "znver3", "+avx2,+fma,-avx512f")

    def test_a_machine_with_more_features_is_accepted(self) -> None:
        check_target(FOR_ZEN_3, "x86_64-pc-linux-gnu", "znver4", "+fma,+avx512f,+avx2,+sse2")

    def test_a_missing_feature_is_named_with_both_processors(self) -> None:
        with pytest.raises(ArtifactError) as caught:
            check_target(FOR_ZEN_3, LINUX, "core2", "+sse2,-avx2")
        assert "compiled for znver3; this machine's processor is core2" in str(caught.value)
        assert "avx2, fma" in str(caught.value)

    @pytest.mark.parametrize(
        "triple",
        ["aarch64-unknown-linux-gnu", "x86_64-apple-darwin23.1.0", "x86_64-pc-windows-msvc"],
    )
    def test_another_system_is_refused(self, triple: str) -> None:
        with pytest.raises(ArtifactError, match="another system") as caught:
            check_target(FOR_ZEN_3, triple, "generic", "+avx2,+fma")
        assert "znver3" in str(caught.value)
        assert triple in str(caught.value)

    def test_the_version_of_the_system_does_not_matter(self) -> None:
        manifest = {"target": describe_target("arm64-apple-darwin23.1.0", "apple-m1", "+neon")}
        check_target(manifest, "aarch64-apple-darwin24.0.0", "apple-m3", "+neon,+sme")

    def test_another_version_of_monograph_is_refused(self) -> None:
        target = {**describe_target(LINUX, "znver3", ""), "monograph": "0.0.1"}
        with pytest.raises(ArtifactError, match="another version") as caught:
            check_target({"target": target}, LINUX, "znver3", "")
        assert __version__ in str(caught.value)

    @pytest.mark.parametrize("manifest", [{}, {"target": None}, {"target": {"triple": "x"}}])
    def test_an_artifact_that_does_not_say_is_refused(self, manifest: dict[str, object]) -> None:
        with pytest.raises(ArtifactError, match="does not say"):
            check_target(manifest, LINUX, "znver3", "")  # type: ignore[arg-type]


def test_reading_needs_no_framework(artifact: Path) -> None:
    program = (
        "import sys; from monograph.runtime.artifact import read_artifact; "
        f"read_artifact({str(artifact)!r}); "
        "assert not {'torch', 'onnx', 'jax', 'llvmlite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

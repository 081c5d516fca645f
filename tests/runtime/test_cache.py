"""The cache gives back what was put into it, or nothing: whatever happens to process or disk."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from monograph.config import Config
from monograph.errors import InputError
from monograph.runtime import cache as cache_module
from monograph.runtime.atomic import is_temporary
from monograph.runtime.bundle import Bundle
from monograph.runtime.cache import (
    STALE_SECONDS,
    Cache,
    CacheWarning,
    cache_key,
    default_folder,
    open_cache,
    toolchain,
)
from tests.runtime.bundles import array_of_every_dtype, equal, small_bundle
from tests.runtime.together import on_threads

posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX's")
as_user = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere"
)
as_root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away"
)

KEY = cache_key({"program": "p"})
OTHER_KEY = cache_key({"program": "q"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> Cache:
    return Cache(folder)


@pytest.fixture(autouse=True)
def no_warning_unless_expected() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        yield


def entry(folder: Path, key: str = KEY) -> Path:
    return folder / f"{key}.mono"


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if is_temporary(path.name)]


class TestStoring:
    def test_a_bundle_comes_back(self, cache: Cache) -> None:
        assert cache.get(KEY) is None
        assert cache.put(KEY, small_bundle())
        found = cache.get(KEY)
        assert found is not None
        assert equal(found, small_bundle())
        assert cache.get(OTHER_KEY) is None

    def test_arrays_of_every_dtype_come_back(self, cache: Cache) -> None:
        bundle = Bundle({}, {}, array_of_every_dtype())
        assert cache.put(KEY, bundle)
        found = cache.get(KEY)
        assert found is not None
        assert equal(found, bundle)

    def test_a_second_put_replaces_the_first(self, cache: Cache) -> None:
        cache.put(KEY, small_bundle("first"))
        held = cache.get(KEY)
        cache.put(KEY, small_bundle("second"))
        found = cache.get(KEY)
        assert held is not None
        assert found is not None
        assert found.blobs["text/graph.ir"] == b"second"
        assert held.arrays["w"].tolist() == [0, 1, 2, 3, 4]

    def test_another_process_finds_it(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle("from here"))
        run(
            "assert Cache(sys.argv[1]).get(KEY).blobs['text/graph.ir'] == b'from here'", str(folder)
        )

    def test_clear_empties_it_and_leaves_other_files(self, cache: Cache, folder: Path) -> None:
        cache.clear()
        cache.put(KEY, small_bundle())
        (folder / "notes.txt").write_text("mine")
        assert cache.size() == entry(folder).stat().st_size
        cache.clear()
        assert cache.size() == 0
        assert [path.name for path in folder.iterdir()] == ["notes.txt"]

    @posix
    def test_folder_and_entries_are_private(self, cache: Cache, folder: Path) -> None:
        before = os.umask(0)
        try:
            cache.put(KEY, small_bundle())
        finally:
            os.umask(before)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(entry(folder).stat().st_mode) == 0o600

    @pytest.mark.parametrize("key", ["", "x", "../" + "0" * 61, "0" * 63 + "\n", "A" * 64])
    def test_what_is_not_a_key_is_refused(self, cache: Cache, key: str) -> None:
        with pytest.raises(InputError, match="not a cache key"):
            cache.get(key)
        with pytest.raises(InputError, match="not a cache key"):
            cache.put(key, small_bundle())


class TestKeys:
    def test_a_key_is_the_same_in_every_process_and_order(self) -> None:
        expected = "5b91cdb5c593860f8ed8500d261ac47efebd7399af1f7859525fa052f8adbf5e"
        assert cache_key({"program": "p", "options": "größer"}) == expected
        assert cache_key({"options": "größer", "program": "p"}) == expected

    @pytest.mark.parametrize(
        "parts",
        [{}, {"a": "1"}, {"a": "1", "b": ""}, {"a": "1b"}, {"a1": "b"}, {"a": "", "1b": ""}],
    )
    def test_other_parts_give_another_key(self, parts: dict[str, str]) -> None:
        assert cache_key(parts) != cache_key({"a": "1", "b": "2"})
        assert cache_key(parts) != cache_key({"a": "b", "1": ""})

    def test_the_toolchain_names_versions(self) -> None:
        assert set(toolchain()) == {"monograph", "llvmlite", "llvm"}
        assert all(toolchain().values())


class TestDamage:
    def damage(self, folder: Path, contents: bytes) -> None:
        entry(folder).write_bytes(contents)
        os.chmod(entry(folder), 0o600)

    def test_a_damaged_entry_is_a_miss_and_is_removed(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        whole = entry(folder).read_bytes()
        generator = random.Random(2)
        for _ in range(200):
            place = generator.randrange(len(whole))
            damaged = bytearray(whole)
            damaged[place] ^= generator.randint(1, 255)
            for contents in (bytes(damaged), whole[:place]):
                self.damage(folder, contents)
                assert cache.get(KEY) is None
                assert not entry(folder).exists()

    def test_an_entry_under_another_key_is_a_miss(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        entry(folder).rename(entry(folder, OTHER_KEY))
        assert cache.get(OTHER_KEY) is None
        assert not entry(folder, OTHER_KEY).exists()

    @posix
    def test_a_link_is_a_miss(self, cache: Cache, folder: Path, tmp_path: Path) -> None:
        cache.put(KEY, small_bundle())
        elsewhere = entry(folder).rename(tmp_path / "elsewhere.mono")
        entry(folder).symlink_to(elsewhere)
        assert cache.get(KEY) is None
        assert elsewhere.exists()
        assert not entry(folder).is_symlink()

    @posix
    def test_an_entry_that_others_may_write_is_a_miss(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        entry(folder).chmod(0o666)
        assert cache.get(KEY) is None

    @as_root
    def test_an_entry_of_somebody_else_is_a_miss(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        os.chown(entry(folder), 12345, -1)
        assert cache.get(KEY) is None

    def test_a_folder_in_an_entrys_place_is_a_miss(self, cache: Cache, folder: Path) -> None:
        cache.put(OTHER_KEY, small_bundle())
        entry(folder).mkdir()
        assert cache.get(KEY) is None


class TestUnusableFolders:
    """Each is a miss and one warning, and never an error."""

    def check(self, cache: Cache, reason: str) -> None:
        with pytest.warns(CacheWarning, match=reason) as caught:
            assert not cache.put(KEY, small_bundle())
            assert cache.get(KEY) is None
            cache.put(OTHER_KEY, small_bundle())
            cache.clear()
            assert cache.size() == 0
        assert len(caught) == 1
        assert "MONOGRAPH_CACHE_DIR" in str(caught[0].message)

    @posix
    def test_of_somebody_else(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        cache.put(KEY, small_bundle())
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        self.check(cache, "belongs to somebody else")

    @as_root
    def test_given_away(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        os.chown(folder, 12345, -1)
        self.check(cache, "belongs to somebody else")

    @posix
    @pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
    def test_that_others_may_write(self, cache: Cache, folder: Path, mode: int) -> None:
        cache.put(KEY, small_bundle())
        folder.chmod(mode)
        self.check(cache, "others may write to it")
        assert entry(folder).exists()

    @posix
    def test_that_is_a_link(self, tmp_path: Path, folder: Path) -> None:
        Cache(folder).put(KEY, small_bundle())
        link = tmp_path / "link"
        link.symlink_to(folder)
        self.check(Cache(link), "symbolic link")

    def test_that_is_a_file(self, folder: Path) -> None:
        folder.write_text("")
        self.check(Cache(folder), "not a folder")

    def test_below_a_file(self, folder: Path) -> None:
        folder.write_text("")
        self.check(Cache(folder / "cache"), "Not a directory")

    @as_user
    def test_that_is_read_only(self, cache: Cache, folder: Path) -> None:
        folder.mkdir(mode=0o500)
        self.check(cache, "Permission denied")

    @as_root
    def test_that_is_read_only_to_a_user(self) -> None:
        """The same as above for a test run by root: a child gives its rights up first."""
        program = """
            import os, warnings
            folder = sys.argv[1] + "/locked"
            os.mkdir(folder)
            os.chown(folder, 12345, -1)
            os.chmod(folder, 0o500)
            os.setresuid(12345, 12345, 12345)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for cache in (Cache(folder), Cache(folder + "/below")):
                    assert not cache.put(KEY, Bundle({}))
                    assert cache.get(KEY) is None
            assert [str(each.message).count("Permission denied") for each in caught] == [1, 1]
        """
        with TemporaryDirectory() as shared:  # the folders of pytest are closed to other users
            Path(shared).chmod(0o755)
            run(program, shared)

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES])
    @pytest.mark.parametrize("call", ["fsync", "replace", "open"])
    def test_on_a_failing_disk(
        self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
    ) -> None:
        cache.put(OTHER_KEY, small_bundle())

        def fail(*arguments: object) -> int:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch, pytest.warns(CacheWarning) as caught:
            patch.setattr(os, call, fail)
            assert not cache.put(KEY, small_bundle())
            assert not cache.put(KEY, small_bundle())
        assert len(caught) == 1
        assert os.strerror(code) in str(caught[0].message)
        assert [path.name for path in folder.iterdir()] == [f"{OTHER_KEY}.mono"]
        assert cache.put(KEY, small_bundle())

    def test_an_entry_that_cannot_be_read(
        self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache.put(KEY, small_bundle())

        def fail(*arguments: object, **options: object) -> Bundle:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(cache_module, "read_container", fail)
        with pytest.warns(CacheWarning, match="cannot be read: Input/output error"):
            assert cache.get(KEY) is None
        assert entry(folder).exists()

    @posix
    def test_a_file_that_cannot_grow(self, folder: Path) -> None:
        program = """
            import resource, warnings
            import numpy as np
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            cache = Cache(sys.argv[1])
            assert cache.put(KEY, Bundle({}, {"small": b"x"}))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert not cache.put(KEY, Bundle({}, {"large": bytes(1_000_000)}))
                assert not cache.put(KEY, Bundle({}, {}, {"large": np.zeros(1_000_000)}))
            assert len(caught) == 1, caught
            assert cache.get(KEY).blobs == {"small": b"x"}
        """
        run(program, str(folder))
        assert leftovers(folder) == []


class TestLimit:
    SIZE = 100_000

    def fill(self, cache: Cache, name: str) -> str:
        key = cache_key({"name": name})
        assert cache.put(key, Bundle({}, {"o": bytes(self.SIZE)}))
        time.sleep(0.01)  # so that the order of use shows in the times of the files
        return key

    def test_the_least_recently_used_entries_go(self, folder: Path) -> None:
        cache = Cache(folder, limit_bytes=3 * self.SIZE + self.SIZE // 2)
        first, second, third = (self.fill(cache, name) for name in "abc")
        assert cache.get(first) is not None
        fourth = self.fill(cache, "d")
        assert cache.get(second) is None
        assert all(cache.get(key) is not None for key in (first, third, fourth))
        assert cache.size() <= 3.5 * self.SIZE

    def test_the_newest_entry_stays_whatever_the_clock_says(self, folder: Path) -> None:
        cache = Cache(folder, limit_bytes=self.SIZE + self.SIZE // 2)
        self.fill(cache, "a")
        later = time.time() + 1000
        for path in folder.iterdir():
            os.utime(path, (later, later))
        assert cache.get(self.fill(cache, "b")) is not None
        assert cache.get(cache_key({"name": "a"})) is None

    def test_what_is_larger_than_the_limit_is_not_stored(self, folder: Path) -> None:
        cache = Cache(folder, limit_bytes=1000)
        assert not cache.put(KEY, Bundle({}, {"o": bytes(1001)}))
        assert cache.size() == 0

    def test_only_old_unfinished_files_are_swept_up(self, cache: Cache, folder: Path) -> None:
        cache.put(KEY, small_bundle())
        old, young = (folder / f".monograph-{digit * 32}.tmp" for digit in "01")
        old.write_bytes(b"half")
        young.write_bytes(b"half")
        then = time.time() - STALE_SECONDS - 60
        os.utime(old, (then, then))
        cache.put(OTHER_KEY, small_bundle())
        assert not old.exists()
        assert young.exists()

    def test_a_negative_limit_is_refused(self, folder: Path) -> None:
        with pytest.raises(InputError, match="number of bytes"):
            Cache(folder, limit_bytes=-1)


PRELUDE = f"""
import sys
from monograph.runtime.bundle import Bundle
from monograph.runtime.cache import Cache
KEY = {KEY!r}
"""


def run(program: str, *arguments: str) -> None:
    """Run a program in a process of its own; its assertions are ours."""
    done = start(program, *arguments)
    _, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors.decode()


def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a program in a process of its own."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class TestManyProcesses:
    def test_two_processes_fill_one_cache(self, folder: Path) -> None:
        """Both write the same keys again and again and read what the other wrote."""
        program = """
            from monograph.runtime.cache import cache_key
            import numpy as np, warnings
            warnings.simplefilter("error")
            cache = Cache(sys.argv[1])
            keys = [cache_key({"number": str(number)}) for number in range(10)]
            for turn in range(300):
                number = (turn * int(sys.argv[2])) % 10
                array = np.full(3000, number, np.float32)
                bundle = Bundle({"n": number}, {"o": b"o" * 999}, {"w": array})
                assert cache.put(keys[number], bundle)
                other = (number + turn) % 10
                found = cache.get(keys[other])
                if found is not None:
                    assert found.manifest == {"n": other} and (found.arrays["w"] == other).all()
        """
        workers = [start(program, str(folder), multiplier) for multiplier in ("3", "7")]
        for worker in workers:
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors.decode()
        cache = Cache(folder)
        assert all(cache.get(cache_key({"number": str(n)})) is not None for n in range(10))
        assert leftovers(folder) == []

    def test_processes_may_trim_each_others_entries(self, folder: Path) -> None:
        program = """
            from monograph.runtime.cache import cache_key
            import warnings
            warnings.simplefilter("error")
            cache = Cache(sys.argv[1], limit_bytes=50_000)
            for turn in range(300):
                key = cache_key({sys.argv[2]: str(turn % 40)})
                assert cache.put(key, Bundle({"turn": turn}, {"o": bytes(9_000)}))
                cache.get(key)
        """
        workers = [start(program, str(folder), name) for name in ("a", "b")]
        for worker in workers:
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors.decode()
        assert Cache(folder).size() <= 60_000

    def test_threads_share_a_cache(self, cache: Cache) -> None:
        wrong: list[object] = []

        def work(seed: int) -> None:
            for turn in range(40):
                key = cache_key({"n": str((seed + turn) % 4)})
                expected = str((seed + turn) % 4)
                cache.put(key, small_bundle(expected))
                found = cache.get(key)
                if found is None or found.blobs["text/graph.ir"] != expected.encode():
                    wrong.append(found)

        on_threads(work, range(4))
        assert wrong == []

    @posix
    def test_a_process_killed_while_it_writes(self, cache: Cache, folder: Path) -> None:
        """A writer is killed a hundred times in the midst of it: there is never half an entry."""
        program = """
            import os, random, signal, time
            import numpy as np
            cache = Cache(sys.argv[1])
            array = np.arange(300_000, dtype=np.float32)
            bundle = Bundle({"whole": True}, {"o": bytes(100_000)}, {"w": array})
            assert cache.put(KEY, bundle)
            generator = random.Random(3)
            for _ in range(100):
                child = os.fork()
                while child == 0:
                    cache.put(KEY, bundle)
                time.sleep(generator.uniform(0, 0.04))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                found = cache.get(KEY)
                assert found.manifest == {"whole": True} and len(found.blobs["o"]) == 100_000
                assert np.array_equal(found.arrays["w"], array)
        """
        run(program, str(folder))
        unfinished = leftovers(folder)
        assert unfinished != []
        then = time.time() - STALE_SECONDS - 60
        for path in unfinished:
            os.utime(path, (then, then))
        cache.put(OTHER_KEY, small_bundle())
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [f"{KEY}.mono", f"{OTHER_KEY}.mono"]
        )

    def test_an_interrupted_write_leaves_nothing(
        self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(descriptor: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.put(KEY, small_bundle())
        assert list(folder.iterdir()) == []


class TestSettings:
    def test_the_folder_is_the_platforms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert default_folder({}, "linux") == Path("/home/me/.cache/monograph")
        assert default_folder({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/monograph")
        assert default_folder({"XDG_CACHE_HOME": "x"}, "linux") == Path("/home/me/.cache/monograph")
        assert default_folder({}, "darwin") == Path("/home/me/Library/Caches/monograph")
        assert default_folder({"LOCALAPPDATA": "/local"}, "win32") == Path("/local/monograph")

    def test_the_environment_chooses(self, folder: Path) -> None:
        assert open_cache(Config.from_environment({"MONOGRAPH_CACHE": "0"})) is None
        chosen = open_cache(Config.from_environment({"MONOGRAPH_CACHE_DIR": str(folder)}))
        assert chosen is not None
        assert chosen.folder == folder
        usual = open_cache(Config.from_environment({}))
        assert usual is not None
        assert usual.folder == default_folder()

    def test_a_user_without_a_home_has_no_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def homeless(path: Path) -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "expanduser", homeless)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        with pytest.warns(CacheWarning, match="no home"):
            assert open_cache(Config()) is None

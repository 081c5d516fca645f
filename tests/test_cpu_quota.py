"""The processors that a container's quota comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from monograph.cpu_quota import cpu_quota


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("1000 100000\n", 1), ("max 100000\n", None)],
)
def test_version_two_has_one_file(tmp_path: Path, text: str, quota: int | None) -> None:
    group(tmp_path / "cgroup", "", cpu_max=text)
    (tmp_path / "self").write_text("0::/\n")
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "self") == quota


def test_the_least_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "", cpu_max="max 100000")
    group(root, "slice", cpu_max="300000 100000")
    group(root, "slice/own", cpu_max="400000 100000")
    (tmp_path / "self").write_text("0::/slice/own\n")
    assert cpu_quota(root, tmp_path / "self") == 3


@pytest.mark.parametrize(("quota", "count"), [("250000\n", 3), ("-1\n", None)])
def test_version_one_has_two_files(tmp_path: Path, quota: str, count: int | None) -> None:
    root = tmp_path / "cgroup"
    group(root, "cpu/docker", cpu_cfs_quota_us=quota, cpu_cfs_period_us="100000\n")
    (tmp_path / "self").write_text("4:cpu,cpuacct:/docker\n1:memory:/other\n")
    assert cpu_quota(root, tmp_path / "self") == count


def test_there_may_be_no_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "self") is None

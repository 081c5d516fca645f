"""How many processors' worth of time a container may use (Linux control groups, both versions)."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_quota(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """The whole processors that the quota of this process comes to; None without a quota.

    The quotas of all groups that it is in apply, so the least one does.
    """
    found = [_of_group(root, folder) for folder in _folders(root, membership)]
    return min((quota for quota in found if quota is not None), default=None)


def _folders(root: Path, membership: Path) -> list[Path]:
    """The group of this process and those around it; in a container that may be the root alone."""
    text = _read(membership) or ""
    folders = {root, root / "cpu"}
    for line in text.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "" or "cpu" in controllers.split(","):
            base = root if controllers == "" else root / "cpu"
            own = base / path.lstrip("/")
            folders |= {own, *(each for each in own.parents if each.is_relative_to(base))}
    return sorted(folders)


def _of_group(root: Path, folder: Path) -> int | None:
    if not folder.is_relative_to(root):  # a path with .. in it, of a group outside of the container
        return None
    both = _read(folder / "cpu.max")
    if both is not None:
        quota, period = (*both.split(), "", "")[:2]
    else:
        quota = (_read(folder / "cpu.cfs_quota_us") or "").strip()
        period = (_read(folder / "cpu.cfs_period_us") or "").strip()
    if not quota.isdecimal() or not period.isdecimal() or not int(period):  # "max", or -1
        return None
    return max(1, -(-int(quota) // int(period)))


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:  # there is no such group, or no groups at all
        return None

"""``monograph cache``: what the disk cache of compiled programs holds, and making it smaller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from monograph.cli import common
from monograph.errors import InputError

if TYPE_CHECKING:
    from monograph.runtime.cache import Cache, StoredEntry

app = typer.Typer(
    name="cache",
    help="See and clear the disk cache of compiled programs.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]


@app.command("ls")
def ls(as_json: common.AsJson = False) -> None:
    """List what the cache holds: model, kind, target, size, and when it was last used.

    - monograph cache ls
    """
    from monograph.inspect.cached import entries_json, entries_text, open_disk_cache

    cache = open_disk_cache()
    folder, entries = str(cache.folder), cache.entries()
    told = entries_json(folder, entries) if as_json else None
    print(json.dumps(told, indent=2) if as_json else entries_text(folder, entries))


@app.command("prune")
def prune(
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="SIZE", help="Keep at most so much: 500M, 2G."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Remove what was not used for: 30d, 12h."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove the entries that were not used for longest, and damaged ones.

    - monograph cache prune --older-than 30d
    - monograph cache prune --keep 500M --yes
    """
    from monograph.inspect.cached import open_disk_cache, parse_age, parse_bytes, prunable

    if keep is None and older_than is None:
        raise InputError(
            "nothing says what may go",
            expected="--keep SIZE, --older-than AGE, or both",
            hint="`monograph cache clear` removes everything",
        )
    cache = open_disk_cache()
    going = prunable(
        cache.entries(),
        keep_bytes=None if keep is None else parse_bytes(keep),
        older_than=None if older_than is None else parse_age(older_than),
    )
    _remove(cache, going, yes)


@app.command("clear")
def clear(yes: Yes = False) -> None:
    """Remove every entry; programs are compiled afresh when they are next asked for.

    - monograph cache clear --yes
    """
    from monograph.inspect.cached import open_disk_cache

    cache = open_disk_cache()
    if _remove(cache, cache.entries(), yes):
        cache.clear()  # what killed processes left, too


def _remove(cache: Cache, going: Sequence[StoredEntry], yes: bool) -> bool:
    """Remove entries, if there are any and nobody objects."""
    from monograph.inspect.cached import size_text
    from monograph.inspect.page import count

    told = f"{count(len(going), 'file')}, {size_text(sum(entry.nbytes for entry in going))}"
    if not going:
        print(f"{cache.folder}: nothing to remove")
        return True
    if not yes and not typer.confirm(f"Remove {told} from {cache.folder}?"):
        print("nothing was removed")
        return False
    for entry in going:
        cache.remove(entry.key)
    print(f"{cache.folder}: removed {told}")
    return True

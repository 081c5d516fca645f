"""How to compile: everything that a caller can ask of the compiler, checked and with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.specialize import SizeRange
from monograph.passes.manager import Pipeline, flat_passes
from monograph.passes.pipeline import pipeline_for
from monograph.program.records import require_type
from monograph.runtime.bundle import Json
from monograph.runtime.device import runs_here
from monograph.runtime.specialization import VariantLimit
from monograph.runtime.thread_count import check_threads
from monograph.switches import any_off
from monograph.targets.base import Target, Tuning
from monograph.targets.names import resolve_target

DEFAULT_SECONDS = 20.0
"""How long ``level="O3"`` searches unless it is told."""


@dataclass(frozen=True)
class Options:
    """How to compile."""

    level: str = "O2"
    threads: int | None = None
    strict: bool = False
    fusion: bool = True
    listings: bool = False
    cache: bool | None = None
    """Whether to use the disk cache; ``MONOGRAPH_CACHE`` decides if None."""
    strides: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Inputs, by number, that are not row-major: how many elements apart neighbours are."""
    winograd_tolerance: float | None = None
    """The largest error, over the largest result, that a convolution may have to be faster
    (``kernel.winograd_transform``); None leaves it as exact as direct sums, 0 takes only those."""
    budget: float | None = None
    """Seconds to search for better schedules on this machine (``tuning.search``), unless the cache
    has the result of a search; None is ``DEFAULT_SECONDS`` at O3 and no search below."""
    tuning: Tuning | None = None
    """Choices of schedules that are overruled, instead of a search."""
    keep_weights: bool = False
    """Whether weights of which the program has packed copies are held all the same."""
    again: bool = False
    """Whether to compile, or search, although the cache has a result; it then has the new one."""
    passes: Pipeline | None = None
    """The passes to run on the graph, instead of those of the level."""
    sizes: Mapping[str, SizeRange] = field(default_factory=dict)
    """Symbolic dimensions, by name, that have one size, or sizes in a range (``ir.specialize``)."""
    variants: int | None = None
    """For how many of the sizes that come back to keep programs of their own
    (``specialize.variants``); ``MONOGRAPH_VARIANTS`` decides if None."""
    variant_limit: VariantLimit | None = None
    """What counts the variants of all parts of a program, for one that consists of several."""
    target: Target | str | None = None
    """What to compile for, or its name (``targets.names``); ``MONOGRAPH_TARGET`` decides if None,
    and it is the processor of this machine if that is not set either."""

    @property
    def resolved_target(self) -> Target:
        """The target itself: a name is looked up when this is asked for."""
        return self.target if isinstance(self.target, Target) else resolve_target(self.target)

    @property
    def pipeline(self) -> Pipeline:
        """The passes that run on the graph before it is lowered."""
        return pipeline_for(self.level) if self.passes is None else self.passes

    @property
    def may_cache(self) -> bool | None:
        """Whether the disk cache may be used: not for listings, which are not stored, nor with
        passes that are not this package's, of which nobody knows when they change.
        """
        listed = [] if self.passes is None else flat_passes(self.passes)
        foreign = any(not type(each).__module__.startswith("monograph.") for each in listed)
        return False if self.listings or foreign or any_off() else self.cache

    @property
    def key(self) -> dict[str, str]:
        """What of the options decides the code: part of the key of cached programs."""
        edits = "" if self.tuning is None else self.tuning.digest
        return {
            "level": self.level,
            "fusion": str(self.fusion),
            "strides": str(self.strides),
            "winograd_tolerance": str(self.winograd_tolerance),
            "tuning": "searched" if self.search_seconds else edits,
            "replaced": str(bool(self.variants)),
            "passes": "" if self.passes is None else str(list(map(str, self.passes))),
        }

    @property
    def settings(self) -> dict[str, Json]:
        """What decides how the parts of a program that is completed by its calls are compiled."""
        tolerance = self.winograd_tolerance
        return {
            "level": self.level,
            "strict": self.strict,
            "fusion": self.fusion,
            "winograd_tolerance": None if tolerance is None else float(tolerance),
        }

    @property
    def search_seconds(self) -> float:
        """How long to search."""
        if self.tuning is not None or self.listings:
            return 0.0
        if self.budget is None:
            is_wanted = self.level == "O3" and runs_here(self.resolved_target.record)
            return DEFAULT_SECONDS if is_wanted else 0.0
        if self.budget and not runs_here(self.resolved_target.record):
            raise InputError(
                f"{self.resolved_target} is not this machine, and a search measures",
                hint="leave the budget out, or tune where the program will run",
            )
        if self.budget and self.resolved_target.recorder() is None:
            raise InputError(
                f"{self.resolved_target} has no schedules to search",
                hint="leave the budget out",
            )
        return self.budget

    def __post_init__(self) -> None:
        pipeline_for(self.level)  # an error if there is no such level
        check_threads(self.threads)
        if self.budget is not None and not _is_at_least_zero(self.budget):
            raise InputError(
                "budget is no time", expected="seconds, 0 or more", found=repr(self.budget)
            )
        tolerance = self.winograd_tolerance
        if tolerance is not None and not _is_at_least_zero(tolerance):
            raise InputError(
                "winograd_tolerance is no tolerance",
                expected="an error over the largest result, such as 1e-5, or None",
                found=repr(tolerance),
            )


def _is_at_least_zero(number: object) -> bool:
    return isinstance(number, int | float) and number >= 0


def resolve_options(options: Options | None) -> Options:
    """The options with their target itself, instead of its name."""
    chosen = options or Options()
    return replace(chosen, target=chosen.resolved_target)


def read_settings(value: Json) -> Options:
    """Options of these settings, as they were stored."""
    given = require_type(value, dict)
    tolerance = given.get("winograd_tolerance")
    return Options(
        require_type(given.get("level"), str),
        strict=require_type(given.get("strict"), bool),
        fusion=require_type(given.get("fusion"), bool),
        winograd_tolerance=None if tolerance is None else require_type(tolerance, float),
    )

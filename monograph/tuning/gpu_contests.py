"""Measures choices on the GPU of this machine while a program is compiled for it.

    a lowered graph ─▶ its sites ─▶ a small program for each contender ─▶ times ─▶ ``Measurements``

Libraries and our kernels compete for products and attentions, configurations of ours for the other
kernels. The cost model prunes: at O2 a few contenders of what takes long enough to matter, at O3
more. Sites that are equal are measured once; results are kept in the disk cache for this GPU,
driver and these libraries, and a file of them (``MONOGRAPH_GPU_TIMES``) serves machines
without a GPU.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from logging import INFO

from monograph.config import Config, processor_count
from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.fusion.regions import fuse_regions
from monograph.ir.dims import shape_product
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.logs import stage_logger
from monograph.ops.attention import Attention
from monograph.ops.linalg import DotGeneral
from monograph.program.code import Code, Launch, Slot, SlotKind
from monograph.program.records import require_type
from monograph.runtime.bundle import Bundle
from monograph.runtime.cache import cache_key, open_cache
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.gpu.bench import Timer, time_programs
from monograph.runtime.options import Options
from monograph.targets.base import BuildOptions, Target
from monograph.targets.gpu.assemble import kernel_site
from monograph.targets.gpu.choices import (
    ATTENTION_BACKENDS,
    CUBLAS,
    CUBLASLT,
    OURS,
    Site,
    site_of,
    sites_of,
)
from monograph.targets.gpu.cost import H200
from monograph.targets.gpu.driver import driver
from monograph.targets.gpu.families import PlannedSteps, plans_of
from monograph.targets.gpu.group_kernel import attention_plans
from monograph.targets.gpu.joint_products import APART, JOINED, pair_key, pairs_of
from monograph.targets.gpu.measurements import Measurements, read_measurements
from monograph.targets.gpu.modules import MachineCode, write_modules
from monograph.targets.gpu.plan import KernelSequence
from monograph.targets.gpu.target import GpuTarget

LIBRARY_SHARE = 0.9
"""The share of the chip's rate that a library's product is taken to reach."""
_LOG = stage_logger("assemble")


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    ours: int
    """Configurations of our own kernels that are tried against a library."""
    cuts: int
    """The same against each other, which are quickly compiled."""
    slowdown: float
    """How much slower than the best contender one may be predicted to be."""
    least: float
    """Microseconds of a program, all equal sites together, below which a site is not measured."""


EFFORTS: Mapping[str, Effort] = {"O2": Effort(2, 5, 1.25, 10.0), "O3": Effort(6, 8, 2.0, 0.0)}
"""By level; the levels below measure nothing."""
_TABLES: dict[str, Measurements] = {}
"""What this process has measured or read, by machine."""


def measure_target(
    target: Target,
    graph: Graph,
    options: Options,
    report: CompileReport,
    timer: Timer | None = None,
) -> Target:
    """The target with what was measured of the sites of a lowered graph, now or before."""
    assert isinstance(target, GpuTarget)
    effort = EFFORTS.get(options.level)
    if effort is None or (timer is None and not _has_torch()):
        return target
    started = time.perf_counter()
    store = _Store(options)
    table = store.read()
    for site, times in target.chip.measured.sites.items():
        table.sites.setdefault(site, dict(times))
    known = len(table.sites)
    chip = replace(target.chip, measured=table)
    contests = Contests(GpuTarget(target.name, chip), effort, timer or time_programs)
    contests.measure_pairs(graph, fusion=options.fusion)
    contests.measure_sites(graph)
    contests.measure_kernels(graph, fusion=options.fusion)
    if len(table.sites) > known:
        store.keep(table)
    report.seconds["measuring"] = time.perf_counter() - started
    _LOG.log(INFO, "@%s: %d sites measured", graph.name, len(table.sites) - known)
    return contests.target


def list_tables() -> tuple[Measurements, ...]:
    """What this process has measured or read, a table for each machine."""
    return tuple(_TABLES.values())


def _has_torch() -> bool:
    """Whether torch is there, which measures: it computes what libraries do."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


# What is kept -------------------------------------------------------------------------------------


def machine_text() -> str:
    """The GPU, its driver and what else decides times, in words."""
    import torch
    import triton

    here = driver().device(0)
    parts = (
        here.name,
        here.architecture,
        f"driver {driver().version}",
        f"torch {torch.__version__}",
    )
    return ", ".join((*parts, f"triton {triton.__version__}"))


class _Store:
    """Where the measurements of this machine are kept: this process, and the disk cache."""

    def __init__(self, options: Options) -> None:
        config = Config.from_environment()
        use = config.cache if options.cache is None else options.cache
        self.cache = open_cache(replace(config, cache=True)) if use else None
        self.machine = machine_text()
        self.key = cache_key({"measurements of": self.machine, "tf32": str(config.tf32)})

    def read(self) -> Measurements:
        """What is known already; a stored table that cannot be read is measured again."""
        table = _TABLES.setdefault(self.key, Measurements(self.machine))
        found = None if self.cache is None else self.cache.get(self.key)
        if found is not None:
            try:
                stored = read_measurements(require_type(found.manifest.get("table"), str))
            except MonographError as problem:
                _LOG.warning("measurements are made again: %s", problem)
                return table
            for site, times in stored.sites.items():
                table.sites.setdefault(site, dict(times))
        return table

    def keep(self, table: Measurements) -> None:
        """Store the table for later processes."""
        if self.cache is not None:
            about = {"kind": "tuning", "model": "GPU measurements", "target": self.machine}
            self.cache.put(self.key, Bundle({"about": about, "table": table.text()}))


# Contests -----------------------------------------------------------------------------------------


class Contests:
    """Measures what a target's table does not have yet."""

    def __init__(self, target: GpuTarget, effort: Effort, timer: Timer) -> None:
        self.target = target
        self.effort = effort
        self.timer = timer

    @property
    def table(self) -> Measurements:
        """What is measured."""
        return self.target.chip.measured

    def measure_pairs(self, graph: Graph, *, fusion: bool = True) -> None:
        """Two products of one operand by one kernel, by two, or by the library.

        What computes each of the two follows from that.
        """
        sites = {site.key: site for site in sites_of(graph, self.target.chip)}
        ours = self.choosing(dict.fromkeys(sites, OURS))
        whole = fuse_regions(graph, ours.computes, ours.fusion_limits, enabled=fusion)[graph]
        found: dict[str, tuple[Graph, list[str], dict[str, GpuTarget]]] = {}
        for writer, reader in pairs_of(whole):
            nodes = (*writer.nodes, *reader.nodes)
            key = pair_key(nodes)
            if key is None or key in self.table.sites or key in found:
                continue
            alone = copy_alone(nodes, reader.outputs())
            products = [site_of(node) for node in nodes if isinstance(node.op, DotGeneral)]
            keys = [site.key for site in products if site is not None]
            if sum(map(library_microseconds, _products(nodes))) < self.effort.least:
                continue
            by_us = dict.fromkeys(keys, OURS)
            found[key] = alone, keys, {
                JOINED: self.choosing({**by_us, key: JOINED}),
                APART: self.choosing({**by_us, key: APART}),
                CUBLAS: self.choosing(dict.fromkeys(keys, CUBLAS)),
            }  # fmt: skip
        for key, (alone, keys, targets) in found.items():
            with ThreadPoolExecutor(len(targets)) as threads:
                codes = threads.map(self.program, targets.values(), [alone] * len(targets))
            pairs = zip(targets, codes, strict=True)
            self.contest(key, {name: code for name, code in pairs if code is not None})
            times = self.table.times(key)
            for each in keys if times else ():
                named = {x if x == CUBLAS else f"{OURS} {x}": taken for x, taken in times.items()}
                self.table.add(each, named)

    def measure_sites(self, graph: Graph) -> None:
        """Libraries against our kernels, for the products and attentions of a graph."""
        sites = list(sites_of(graph, self.target.chip))
        counts = Counter(site.key for site in sites)
        jobs = list[tuple[str, str, GpuTarget, Graph]]()
        for site in {each.key: each for each in sites}.values():
            taken = counts[site.key] * library_microseconds(site.nodes[0])
            if site.key not in self.table.sites and taken >= self.effort.least:
                alone = copy_alone(site.nodes)
                made = self.contenders(site, alone).items()
                jobs += [(site.key, name, target, alone) for name, target in made]
        with ThreadPoolExecutor(processor_count()) as threads:
            codes = list(threads.map(lambda job: self.program(job[2], job[3]), jobs))
        compiled: dict[str, dict[str, Code]] = {}
        for (key, name, _, _), code in zip(jobs, codes, strict=True):
            if code is not None:
                compiled.setdefault(key, {})[name] = code
        for key, found in compiled.items():
            self.contest(key, found)

    def measure_kernels(self, graph: Graph, *, fusion: bool = True) -> None:
        """Configurations of our kernels against each other, as the program has them."""
        copy = graph.clone()
        self.target.join_for_libraries(copy)
        groups = fuse_regions(copy, self.target.computes, self.target.fusion_limits, enabled=fusion)
        with closing(self.target.assemble(copy, groups, BuildOptions())) as assembled:
            found = list(assembled.steps.flat.values())
        tried: dict[str, dict[str, KernelSequence]] = {}
        for flat, groups_of in found:
            site = kernel_site(flat)
            if site in self.table.sites or flat.sizes:
                continue
            plans = self.worth_trying(plans_of(flat), most=self.effort.cuts)
            if len(plans) < 2 or len(groups_of) * plans[0].microseconds < self.effort.least:
                continue
            sequences = {plan.name: plan.write(()) for plan in plans}
            if not any(each.checks for x in sequences.values() for each in x.kernels):
                tried[site] = sequences  # of drawn indices, some may be out of range
        jobs = [(site, name, each) for site, one in tried.items() for name, each in one.items()]
        with ThreadPoolExecutor(processor_count()) as threads:
            codes = list(threads.map(lambda job: self.alone(job[2]), jobs))
        compiled: dict[str, dict[str, Code]] = {}
        for (site, name, _), code in zip(jobs, codes, strict=True):
            if code is not None:
                compiled.setdefault(site, {})[name] = code
        for site, programs in compiled.items():
            self.contest(site, programs)

    def alone(self, sequence: KernelSequence) -> Code | None:
        """A program that only launches these kernels; None if they cannot be compiled."""
        try:
            return program_of(sequence, self.target.machine_codes(sequence.kernels))
        except MonographError as problem:
            _LOG.info("a contender cannot be compiled: %s", problem)
            return None

    def worth_trying(
        self, plans: Sequence[PlannedSteps], most: int, bound: float | None = None
    ) -> list[PlannedSteps]:
        """The plans, best first, that may be the fastest."""
        least = min([plans[0].microseconds, *([] if bound is None else [bound])])
        return [x for x in plans if x.microseconds <= self.effort.slowdown * least][:most]

    def contest(self, site: str, codes: Mapping[str, Code]) -> None:
        """Time programs, and note what they took."""
        if len(codes) < 2:
            return
        times = self.timer(codes)
        if times:
            self.table.add(site, times)

    # Contenders of a site ---------------------------------------------------------------------

    def contenders(self, site: Site, alone: Graph) -> dict[str, GpuTarget]:
        """Targets that choose one of a site's contenders each, by name."""
        made: dict[str, GpuTarget] = {}
        if isinstance(site.nodes[0].op, Attention):
            own = site_of(next(iter(alone.nodes)))
            assert own is not None
            key = own.key  # that of a turned site is another: alone, its operands are inputs
            made |= {name: self.choosing({key: name}) for name in ATTENTION_BACKENDS}
            if site.is_turned:
                return made
            for name in attention_plans(site.nodes[0])[: self.effort.ours]:
                made[f"{OURS} {name}"] = self.choosing({key: f"{OURS} {name}"})
            return made
        made[CUBLAS] = self.choosing({site.key: CUBLAS})
        if site.activation:
            made[CUBLASLT] = self.choosing({site.key: CUBLASLT})
        made |= self.our_products(site, alone)
        return made if len(made) > 1 else {}

    def our_products(self, site: Site, graph: Graph) -> dict[str, GpuTarget]:
        """Our best configurations for a product, if they may be as fast as a library's."""
        ours = self.choosing({site.key: OURS})
        groups = fuse_regions(graph, ours.computes, ours.fusion_limits)
        with closing(ours.assemble(graph, groups, BuildOptions())) as assembled:
            kernels = [flat for flat, _ in assembled.steps.flat.values()]
        if len(kernels) != 1:
            return {}
        site_of_kernel = kernel_site(kernels[0])
        bound = library_microseconds(site.nodes[0])
        return {
            f"{OURS} {plan.name}": self.choosing({site.key: OURS, site_of_kernel: plan.name})
            for plan in self.worth_trying(plans_of(kernels[0]), self.effort.ours, bound)
        }

    def choosing(self, winners: Mapping[str, str]) -> GpuTarget:
        """The target with these choices made."""
        sites = {site: {name: 1.0} for site, name in winners.items()}
        chip = replace(self.target.chip, measured=Measurements("chosen", sites))
        return GpuTarget(self.target.name, chip)

    def program(self, target: GpuTarget, graph: Graph) -> Code | None:
        """A program with its results in the arena; None if it cannot be compiled."""
        copy = graph.clone()
        target.join_for_libraries(copy)
        try:
            with closing(
                target.assemble(
                    copy, fuse_regions(copy, target.computes, target.fusion_limits), BuildOptions()
                )
            ) as assembled:
                code: Code = target.emit(assembled)
        except MonographError as problem:
            _LOG.info("a contender cannot be compiled: %s", problem)
            return None
        return replace(code, slots=tuple(map(_in_arena, code.slots)))


def program_of(sequence: KernelSequence, codes: Sequence[MachineCode]) -> Code:
    """A program that only launches these kernels."""
    slots: dict[str, Slot] = {}
    steps, inputs = list[Launch](), 0
    for kernel in sequence.kernels:
        for buffer in kernel.kernel.buffers:
            if buffer.name not in slots:
                is_input = buffer.name.startswith("b")
                kind = SlotKind.INPUT if is_input else SlotKind.ARENA
                slots[buffer.name] = Slot(
                    kind, buffer.name, buffer.dtype, (buffer.reach(),), inputs
                )  # fmt: skip
                inputs += is_input
        numbers = {name: k for k, name in enumerate(slots)}
        places = tuple(numbers[buffer.name] for buffer in kernel.kernel.buffers)
        outputs = len(kernel.kernel.outputs)
        steps.append(Launch(kernel.name, places, (), 1, 1, outputs=outputs, grid=kernel.grid))
    names = [kernel.name for kernel in sequence.kernels]
    machine_code = write_modules(dict(zip(names, codes, strict=True)))
    return Code(machine_code, tuple(slots.values()), (), tuple(steps), {}, (), ())


def _in_arena(slot: Slot) -> Slot:
    """A result where kernels leave what others read: libraries may leave it where it is made."""
    return replace(slot, kind=SlotKind.ARENA) if slot.kind is SlotKind.OUTPUT else slot


def _products(nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if isinstance(node.op, DotGeneral)]


def copy_alone(nodes: Sequence[Node], outputs: Sequence[Value] | None = None) -> Graph:
    """A graph of some nodes alone, whose outputs are these, or the last results."""
    graph = Graph("site")
    inside = {value for node in nodes for value in node.results}
    mapping: dict[Value, Value] = {}
    for node in nodes:
        for value in node.operands:
            if value not in inside and value not in mapping:
                mapping[value] = graph.add_input(f"b{len(mapping)}", value.type)
        copy_node(node, graph, mapping)
    graph.set_outputs([mapping[value] for value in outputs or nodes[-1].results])
    return graph


def library_microseconds(node: Node) -> float:
    """What a library is taken to need for a product or an attention."""
    op, values = node.op, (*node.operands, *node.results)
    nbytes = sum(_count(value.shape) * value.dtype.bits / 8 for value in values)
    if isinstance(op, DotGeneral):
        depth = _count(tuple(node.operands[0].shape[axis] for axis in op.lhs_contracting))
        work = 2 * _count(node.results[0].shape) * depth
    else:
        query, key, *_ = node.operands
        work = 4 * _count(query.shape) * _count(key.shape[-2:-1])
    rate = H200.tensor * LIBRARY_SHARE
    return H200.launch + max(nbytes / H200.bandwidth, work / rate)


def _count(shape: tuple[object, ...]) -> int:
    found = shape_product(shape)  # type: ignore[arg-type]
    assert isinstance(found, int), "sites have sizes that are known"
    return found

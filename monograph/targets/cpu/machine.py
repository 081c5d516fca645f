"""The processor: what it can do, and how text becomes code for it.

Nothing in the emitter knows a particular chip: vector width, registers and caches come from here,
and another chip is another ``Machine``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from monograph.config import Config, processor_count
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import i8, i16, i32, u8
from monograph.targets.cpu.tile_permission import permit_tiles
from monograph.targets.micro_kernel import ONE_STEP, PAIRS, TILE_BYTES, MicroKernel

if TYPE_CHECKING:
    from monograph.targets.cpu.costs import Costs


@dataclass(frozen=True)
class DotInstruction(MicroKernel):
    """An instruction that adds several products to each 32-bit sum of a vector, exactly.

    The integers that it multiplies stand side by side in words of 32 bits: ``steps`` of k at once.
    """

    intrinsic: str
    """LLVM's name of it, for vectors of ``{bits}`` bits or ``{lanes}`` sums."""
    narrowest: int
    widest: int
    """Bytes of the vectors that there is one for."""
    pairs: str = ""
    """The intrinsic that makes 32-bit sums of what the first one leaves: 16-bit sums of two
    products. They hold products of left integers of at most seven bits."""

    def name(self, lanes: int) -> str:
        """The intrinsic for so many sums."""
        return self.intrinsic.format(bits=32 * lanes, lanes=lanes, bytes=4 * lanes)

    def takes_lanes(self, lanes: int) -> bool:
        """Whether so many sums are a vector of its, or several."""
        is_power = lanes & (lanes - 1) == 0
        return 4 * lanes >= self.narrowest and (is_power or 4 * lanes % self.widest == 0)


@dataclass(frozen=True)
class Machine:
    """A processor, as the schedule chooser and the emitter see it."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    """Bytes in a vector register."""
    registers: int
    """How many vector registers there are."""
    l1: int
    l2: int
    l3: int
    """Bytes in the caches: a core's own two, and the last one."""
    threads: int
    """How many threads a call may have: those of this process where it is the host."""
    emulates_tiles: bool = False
    """Whether a matrix unit is played by plain instructions, to test kernels for one."""

    @property
    def costs(self) -> Costs:
        """What it is quick and slow at."""
        from monograph.targets.cpu.costs import costs_of  # which loading a program does without

        return costs_of(self.cpu)

    @property
    def dots(self) -> Mapping[str, DotInstruction]:
        """Its instructions that multiply several integers at a time, by what they compute."""
        return _dot_instructions(self.triple, frozenset(self.features.split(",")))

    def byte_dot(self) -> DotInstruction | None:
        """How it multiplies bytes four at a time; None if it does not."""
        return next((dot for dot in self.dots.values() if dot.steps == 4 and not dot.pairs), None)

    @property
    def tile_unit(self) -> TileUnit:
        """Its matrix unit, which multiplies tiles of bytes."""
        if self.emulates_tiles:
            return TileUnit.EMULATED
        has_tiles = frozenset(self.features.split(",")) >= AMX_FEATURES
        is_whole = self.triple.startswith("x86_64") and self.byte_dot() is not None
        return TileUnit.AMX if has_tiles and is_whole else TileUnit.NONE

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """What the inner loops of products can be, those first that take most steps of k."""
        byte_dot = TILE_BYTES if self.tile_unit is TileUnit.EMULATED else self.byte_dot()
        return (*(() if byte_dot is None else (byte_dot,)), PAIRS, *ONE_STEP)

    def small_byte_dot(self) -> DotInstruction | None:
        """How it multiplies bytes of which the left ones have seven bits; None if it does not."""
        found = next((dot for dot in self.dots.values() if dot.steps == 4), None)
        return self.byte_dot() or found

    def target_machine(self, level: int = 3) -> llvm.TargetMachine:
        """LLVM's view of it."""
        return _target_machine(self, level)


class TileUnit(Enum):
    """A matrix unit: tiles of 16 rows of 64 bytes, multiplied by an instruction."""

    NONE = "none"
    AMX = "AMX"
    EMULATED = "emulated"


AMX_FEATURES = frozenset(("+amx-tile", "+amx-int8"))
VNNI_BYTES = ("dot_u8_i8", 4, u8, i8, i32, "llvm.x86.avx512.vpdpbusd.{bits}")
VNNI_PAIRS = ("multiply_pairs", 2, i16, i16, i32, "llvm.x86.avx512.vpdpwssd.{bits}")
AVX2_BYTES = DotInstruction(
    *("dot_u7_i8", 4, u8, i8, i32, "llvm.x86.avx2.pmadd.ub.sw", 32, 32),
    pairs="llvm.x86.avx2.pmadd.wd",
)
NEON_BYTES = ("dot_i8_i8", 4, i8, i8, i32, "llvm.aarch64.neon.sdot.v{lanes}i32.v{bytes}i8")


@cache
def _dot_instructions(triple: str, features: frozenset[str]) -> Mapping[str, DotInstruction]:
    """The instructions by the features that a processor says it has."""
    found: tuple[DotInstruction, ...] = ()
    if triple.startswith(("x86_64", "i686")):
        has_wide = {"+avx512vnni", "+avx512vl"} <= features
        if has_wide or "+avxvnni" in features:
            widest = 64 if has_wide else 32
            found = tuple(DotInstruction(*each, 16, widest) for each in (VNNI_BYTES, VNNI_PAIRS))
        elif "+avx2" in features:
            found = (AVX2_BYTES,)
    elif triple.startswith("aarch64") and "+dotprod" in features:
        found = (DotInstruction(*NEON_BYTES, 8, 16),)
    return {dot.function: dot for dot in found}


HOST_FALLBACK = (32 << 10, 512 << 10, 16 << 20)
OTHER_THREADS = 8
"""Threads of a processor that is not here: its code is the same wherever it is compiled."""


def host() -> Machine:
    """The machine that this process runs on.

    The environment may say that it has other vectors (``config.Config``). Its instructions stay
    what they are: LLVM makes several of one where a vector is wider than the processor's.
    """
    config = Config.from_environment()
    given = (config.vector_bytes, config.vector_registers, config.matrix_tiles)
    return _describe(*given, processor_count())


@cache
def _describe(
    vector_bytes: int | None, registers: int | None, tiles: str | None, threads: int
) -> Machine:
    """The processor, with other vectors than it has if numbers are given."""
    _initialize()
    features = llvm.get_host_cpu_features()
    triple = llvm.get_process_triple()
    if features.get("amx-int8") and (tiles is not None or not permit_tiles()):
        features.update({name: False for name in features if name.startswith("amx-")})
    found_bytes, found_registers = _vectors(triple, {name for name, on in features.items() if on})
    return Machine(
        triple,
        llvm.get_host_cpu_name(),
        features.flatten(),
        vector_bytes or found_bytes,
        registers or found_registers,
        *_caches(),
        threads,
        tiles == "emulated",
    )


_V2 = "+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
_V4 = f"{_V3},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"
OTHERS = {
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", "+neon", 16, 32),
    "aarch64-dotprod": ("aarch64-unknown-linux-gnu", "generic", "+neon,+dotprod", 16, 32),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 16, 32),
    "wasm32": ("wasm32-unknown-unknown", "generic", "+simd128", 16, 16),
    "x86-64-v2": ("x86_64-unknown-linux-gnu", "x86-64-v2", _V2, 16, 16),
    "x86-64-v3": ("x86_64-unknown-linux-gnu", "x86-64-v3", _V3, 32, 16),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", "x86-64-v4", _V4, 64, 32),
    "x86-64-vnni": ("x86_64-unknown-linux-gnu", "x86-64-v4", f"{_V4},+avx512vnni", 64, 32),
    "sapphirerapids": (
        *("x86_64-unknown-linux-gnu", "sapphirerapids"),
        *(f"{_V4},+avx512vnni,+amx-int8,+amx-tile", 64, 32),
    ),
    "x86-64": ("x86_64-unknown-linux-gnu", "x86-64-v3", _V3, 32, 16),
}
"""Chips that code can be emitted for, by short name.

Their features are all that the code needs: a loader compares them with what its processor has.
"""


def machine_named(name: str) -> Machine:
    """``host``, or one of the chips that code is emitted for without running it."""
    if name in ("cpu", "host"):
        return host()
    if name not in OTHERS:
        raise InputError(
            f"{name!r} is not a processor", expected=", ".join(("host", *OTHERS)), found=repr(name)
        )
    _initialize_all()
    threads = 1 if name.startswith("wasm") else OTHER_THREADS
    return Machine(*OTHERS[name], *HOST_FALLBACK, threads)


def _vectors(triple: str, features: set[str]) -> tuple[int, int]:
    if triple.startswith(("x86_64", "i686")):
        if "avx512f" in features:
            return 64, 32
        return (32, 16) if "avx2" in features else (16, 16)
    return 16, 32


def _caches() -> tuple[int, int, int]:
    """Sizes of the data caches, from the system where it says."""
    found: dict[int, int] = {}
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    for entry in sorted(folder.glob("index*")) if folder.is_dir() else []:
        if (entry / "type").read_text().strip() == "Instruction":
            continue
        level = int((entry / "level").read_text())
        found[level] = _bytes((entry / "size").read_text().strip())
    l1, l2, l3 = HOST_FALLBACK
    return found.get(1, l1), found.get(2, l2), found.get(3, found.get(2, l3))


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.set_option("", "-disable-lsr")


@cache
def _initialize_all() -> None:
    _initialize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def _target_machine(machine: Machine, level: int) -> llvm.TargetMachine:
    return _new_target_machine(machine, level)


def _new_target_machine(machine: Machine, level: int) -> llvm.TargetMachine:
    """One of its own for each module: it is changed while it generates code."""
    target = llvm.Target.from_triple(machine.triple)
    # Code for x86-64 is loaded with whole addresses: with a table of them, programs of several
    # objects crash.
    relocation = "static" if machine.triple.startswith(("wasm", "x86_64")) else "pic"
    model = "small" if machine.triple.startswith(("wasm", "riscv")) else "jitdefault"
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=level, reloc=relocation, codemodel=model
    )


@dataclass(frozen=True)
class Compiled:
    """What LLVM made of a module."""

    object: bytes
    optimized: str | None = None
    assembly: str | None = None


class Effort(Enum):
    """How much LLVM does to a module before it generates code.

    ``QUICK`` is what loop nests need whose positions are computed where they belong (``llvm``): a
    fifth of the time of ``FULL``, after which code of long epilogues takes some hundredths longer.
    """

    NONE = 0
    QUICK = 1
    FULL = 3


QUICK_PASSES = (
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "new_gvn",
    "jump_threading",
    "sccp",
    "instruction_combine",
    "simplify_cfg",
)


def compile_text(
    text: str, machine: Machine, *, effort: Effort = Effort.FULL, listings: bool = False
) -> Compiled:
    """Optimise a module and generate code for a machine; several threads may do so at once."""
    target = _new_target_machine(machine, 0 if effort is Effort.NONE else 3)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    module.verify()
    _optimize(module, target, effort)
    optimized = str(module) if listings else None
    assembly = target.emit_assembly(module) if listings else None
    return Compiled(_emit_object(target, module), optimized, assembly)


def _optimize(module: llvm.ModuleRef, target: llvm.TargetMachine, effort: Effort) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=effort.value)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(target, options)
    # Passes are named, so that an interrupt is not lost in their end.
    if effort is Effort.QUICK:
        passes = llvm.create_new_module_pass_manager()
        for name in QUICK_PASSES:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    _release_lock("LLVMPY_RunNewModulePassManager")(passes, module, builder)


def _emit_object(target: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    with ffi.OutputString() as problem:
        emit = _release_lock("LLVMPY_TargetMachineEmitToMemory")
        buffer = emit(target, module, 1, problem)
        if not buffer:
            raise InputError(f"LLVM cannot generate code: {problem}")
    try:
        begin, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(begin, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@cache
def _release_lock(name: str) -> Callable[..., Any]:
    """A function of LLVM's that does not wait for all others.

    llvmlite lets one thread at a time call LLVM. What takes long works on a module in a context of
    its own, and may run beside others.
    """
    function: Any = getattr(ctypes.CDLL(ffi.lib._name), name)
    guarded = getattr(ffi.lib, name)
    function.argtypes, function.restype = guarded.argtypes, guarded.restype
    found: Callable[..., Any] = function
    return found


class Library:
    """Object code in this process; it is unloaded with the last reference to it."""

    def __init__(self, *objects: bytes) -> None:
        _initialize()
        empty = llvm.parse_assembly("")
        empty.triple = host().triple
        target = llvm.Target.from_triple(host().triple).create_target_machine(
            cpu=host().cpu, features=host().features, opt=3, codemodel="jitdefault"
        )
        self.engine = llvm.create_mcjit_compiler(empty, target)
        for code in objects:
            self.engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self.engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function is."""
        found = int(self.engine.get_function_address(name))
        if found == 0:
            raise InputError(f"the object code has no function {name!r}")
        return found


def function_pointer(address: int, result: type | None, *arguments: type) -> object:
    """A native function as something Python calls."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)

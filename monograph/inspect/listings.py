"""A program at each stage of its making, as text: from the graph to the instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from monograph.errors import InputError
from monograph.fusion.text import fusion_text
from monograph.inspect.planned import plan_graph
from monograph.ir.text.printer import print_graph
from monograph.kernel.text import kernel_text
from monograph.runtime.compiled import Executable
from monograph.targets import base
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.nests.text import nest_text
from monograph.targets.plan import plan_text

FILES: Mapping[str, str] = {
    "ir": "graph.ir",
    "planned": "planned.ir",
    "groups": "groups.txt",
    "plan": "plan.txt",
    "kernels": "kernels.txt",
    "nests": "nests.txt",
    "llvm": "program.ll",
    "asm": "program.s",
    "code": "program.txt",
}
"""The stages, in order, and the name of each one's file in a folder of all of them."""


def listing(executable: Executable, stage: str) -> str:
    """One stage's text."""
    if stage not in FILES:
        raise InputError(f"{stage!r} is not a stage", expected=", ".join(FILES), found=repr(stage))
    if stage == "ir":
        return print_graph(executable.lowered) + "\n"
    if stage == "planned":
        return f"{plan_graph(executable)}\n"
    if stage in _OF_ANY_TARGET:
        return _OF_ANY_TARGET[stage](_require_compiled(executable))
    return _WRITERS[stage](_program(executable, stage))


def stages_of(program: base.Program) -> tuple[str, ...]:
    """The stages that a program of its target has, each text once."""
    if isinstance(program, Program):
        return tuple(stage for stage in FILES if stage != "code")
    return tuple(stage for stage in FILES if stage not in _WRITERS)


def sources(executable: Executable) -> dict[str, str]:
    """The source of each kernel of a program, as its target writes it: LLVM IR, or Triton."""
    return {kernel.name: kernel.text for kernel in _require_compiled(executable).kernels}


def write_listings(executable: Executable, folder: Path) -> list[Path]:
    """Every stage's text, each in a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for stage in stages_of(_require_compiled(executable)):
        path = folder / FILES[stage]
        path.write_text(listing(executable, stage))
        written.append(path)
    return written


def _require_compiled(executable: Executable) -> base.Program:
    program = executable.program
    if program is None:
        raise InputError(
            "there is nothing to list: this model has no native code of its own",
            found=executable.report.specialised
            or "a program that was loaded, without its listings",
        )
    return program


def _program(executable: Executable, stage: str) -> Program:
    """The program, made again where assembly is wanted that was not kept."""
    program = _require_compiled(executable)
    if not isinstance(program, Program):
        raise InputError(
            f"{stage} is a stage of programs for processors", expected=", ".join(stages_of(program))
        )
    if stage != "asm" or program.compiled.assembly is not None:
        return program
    return build(executable.lowered, program.machine, listings=True)


def _groups(program: base.Program) -> str:
    return "\n".join(map(fusion_text, program.fusions))


def _kernels(program: base.Program) -> str:
    return "\n".join(
        f"# {built.name}: its op states the loops itself\n"
        if built.kernel is None
        else kernel_text(built.kernel)
        for built in program.kernels
    )


def _nests(program: Program) -> str:
    return "\n".join(
        nest_text(built.nest)
        if built.schedule is None
        else f"# {built.schedule}\n{nest_text(built.nest)}"
        for built in program.kernels
    )


def _assembly(program: Program) -> str:
    assert program.compiled.assembly is not None, "it was compiled with listings"
    return program.compiled.assembly


def _plans(program: base.Program) -> str:
    return plan_text(program.planned, {each.name: each.summary for each in program.kernels})


_OF_ANY_TARGET: Mapping[str, Callable[[base.Program], str]] = {
    "groups": _groups,
    "plan": _plans,
    "kernels": _kernels,
    "code": lambda program: program.text,
}
_WRITERS: Mapping[str, Callable[[Program], str]] = {
    "nests": _nests,
    "llvm": lambda program: program.text,
    "asm": _assembly,
}

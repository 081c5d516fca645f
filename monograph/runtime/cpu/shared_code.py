"""Code that every program needs, compiled once a machine and then kept in the disk cache.

Compiling it takes longer than all else that a program out of the cache needs.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite
import llvmlite.binding as llvm

from monograph.config import Config
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.cache import cache_key, open_cache


def load_or_compile(label: str, text: str, compile_text: Callable[[str], bytes]) -> bytes:
    """The object file of LLVM's text, from the disk cache if it has been compiled before."""
    cache = open_cache(Config.from_environment())
    if cache is None:
        return compile_text(text)
    key = cache_key(
        {
            label: text,
            "triple": llvm.get_process_triple(),
            "cpu": llvm.get_host_cpu_name(),
            "llvmlite": llvmlite.__version__,
            "llvm": str(llvm.llvm_version_info),
        }
    )
    name = f"{label}.o"
    found = cache.get(key)
    if found is not None and name in found.blobs:
        return found.blobs[name]
    compiled = compile_text(text)
    about: Json = {"kind": "runtime", "model": label, "target": llvm.get_host_cpu_name()}
    cache.put(key, Bundle({"about": about}, {name: compiled}))
    return compiled


def compile_quickly(text: str) -> bytes:
    """An object file for this machine, without optimising: short code that waits for memory.

    Optimising would take three times as long and save next to nothing.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), opt=0, jit=True)
    compiled = machine.emit_object(module)
    assert isinstance(compiled, bytes)
    return compiled


def load_for_good(compiled: bytes, names: tuple[str, ...]) -> dict[str, int]:
    """Link an object into this process, never to be unmapped: the addresses of its functions."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), target.create_target_machine(jit=True)
    )
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(compiled))
    engine.finalize_object()
    addresses = {name: int(engine.get_function_address(name)) for name in names}
    engine.detach()
    return addresses

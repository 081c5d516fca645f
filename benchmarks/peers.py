"""The contenders: Monograph and the compilers and runtimes that it is measured beside.

Each is a small adapter with the same two methods. ``available`` says why a contender cannot take
part at all, and ``prepare`` compiles a case and gives a call without arguments that computes it
once, to the end. A contender that cannot do a case raises, and the table tells why: none is ever
left out silently.

All get two threads, see the same inputs in memory where their interface allows, and are called in
the quickest way that their users have; ``form`` says which. Conversions of inputs are not timed,
except that a view that is not contiguous is copied in each call for those who accept no views.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor

from benchmarks import aten_to_jax
from benchmarks.contender import Peer, Prepared, Unsupported, quickest
from benchmarks.prepacked import Prepacked
from benchmarks.spelling import jax_spelling
from benchmarks.workloads import Case, Inputs

THREADS = 2
# ONNX files are written for both; the quicker one is measured. The newer has GELU and RMS norm as
# single ops, the older spells them, and neither is always the better for a runtime.
OPSETS = (23, 18)
MAX_IREE_CONSTANT_BYTES = 64 << 20
"""Weights up to which IREE is given them as constants: they go through its text as digits."""


class Monograph(Peer):
    """This project, through its public call."""

    name = "monograph"
    form = "monograph.compile(module, *inputs, threads=2)"

    def available(self) -> str | None:
        import monograph

        if hasattr(monograph, "compile"):
            return None
        return "monograph.compile does not exist in this version"

    def prepare(self, case: Case) -> Prepared:
        import monograph

        inputs = case.inputs
        compiled: Any = monograph.compile(case.module, *inputs, threads=THREADS)
        interpreted = len(compiled.executable.report.fallbacks)
        remark = f"{interpreted} nodes run in the interpreter" if interpreted else None
        return Prepared(lambda: compiled(*inputs), remark=remark)


class Eager(Peer):
    """PyTorch, op by op."""

    name = "eager"
    form = "module(*inputs)"

    def prepare(self, case: Case) -> Prepared:
        module, inputs = case.module, case.inputs
        return Prepared(lambda: module(*inputs))


class Inductor(Peer):
    """torch.compile as it comes."""

    name = "inductor"
    form = "torch.compile(module, dynamic=False)"
    options: dict[str, Any] | None = None

    def available(self) -> str | None:
        return None if shutil.which("g++") else "Inductor needs a C++ compiler; g++ is not there"

    def prepare(self, case: Case) -> Prepared:
        compiled, inputs = (
            torch.compile(case.module, dynamic=False, options=self.options),
            case.inputs,
        )
        return Prepared(lambda: compiled(*inputs))


class InductorTuned(Inductor):
    """torch.compile with everything that it offers for inference on the CPU."""

    name = "max-autotune"
    form = "torch.compile(module, dynamic=False, options=max_autotune and freezing)"
    options = {"max_autotune": True, "freezing": True}  # noqa: RUF012


class Xla(Peer):
    """XLA, through JAX."""

    name = "xla"
    form = "jax.jit(function)(*arrays).block_until_ready(), weights as constants"
    needs = ("jax",)

    def prepare(self, case: Case) -> Prepared:
        import jax

        function, weights = jax_function(case)
        inputs = case.inputs
        arrays = tuple(_jax_array(each) for each in inputs)
        compiled = jax.jit(_with_constants(function, weights))
        ready = jax.block_until_ready
        if all(each.is_contiguous() for each in inputs):
            return Prepared(lambda: ready(compiled(*arrays)), _from_jax)
        return Prepared(lambda: ready(compiled(*map(_jax_array, inputs))), _from_jax)


class OnnxRuntime(Peer):
    """ONNX Runtime, on what torch's exporter writes."""

    name = "ort"
    form = "session.run_with_iobinding, inputs and outputs bound once"
    needs = ("onnxruntime", "onnxscript")

    def prepare(self, case: Case) -> Prepared:
        return quickest([partial(self.session, case, opset) for opset in OPSETS])

    def compile(self, case: Case) -> Prepared:
        return self.session(case, OPSETS[0])

    def session(self, case: Case, opset: int) -> Prepared:
        """The case through one version of ONNX."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.log_severity_level = 3
        model = exported(case, opset)
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        binding = session.io_binding()
        outputs = tuple(torch.empty_like(each).contiguous() for each in case.outputs())
        inputs = case.inputs
        bound = [_in_order(each) for each in inputs]
        for declared, tensor in zip(session.get_inputs(), bound, strict=True):
            self.bind(binding.bind_input, declared.name, tensor)
        for declared, tensor in zip(session.get_outputs(), outputs, strict=True):
            self.bind(binding.bind_output, declared.name, tensor)
        run, names = session.run_with_iobinding, [each.name for each in session.get_inputs()]

        def call(_held: object = bound) -> Inputs:  # a binding knows addresses alone
            run(binding)
            return outputs

        def call_with_copies() -> Inputs:
            copies = [_in_order(each) for each in inputs]
            for name, tensor in zip(names, copies, strict=True):
                self.bind(binding.bind_input, name, tensor)
            run(binding)
            return outputs

        contiguous = all(each.is_contiguous() for each in inputs)
        return Prepared(call if contiguous else call_with_copies)

    def bind(self, how: Callable[..., None], name: str, tensor: Tensor) -> None:
        """Bind the tensor's own memory to a name."""
        kind = _ONNX_TYPES[tensor.dtype]
        how(name, "cpu", 0, kind, list(tensor.shape), tensor.data_ptr())


class OpenVino(Peer):
    """OpenVINO, on what torch's exporter writes."""

    name = "openvino"
    form = "request.infer(), inputs set once, outputs reused"
    needs = ("openvino", "onnxscript")

    def prepare(self, case: Case) -> Prepared:
        return quickest([partial(self.request, case, opset) for opset in OPSETS])

    def compile(self, case: Case) -> Prepared:
        return self.request(case, OPSETS[0])

    def request(self, case: Case, opset: int) -> Prepared:
        """The case through one version of ONNX."""
        return self.compiled(case, exported(case, opset))

    def compiled(self, case: Case, source: bytes | Path) -> Prepared:
        """The case through a model of OpenVINO's or ONNX's that computes it."""
        import openvino

        core, inputs = openvino.Core(), case.inputs
        settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
        if all(each.dtype != torch.bfloat16 for each in inputs):
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        model = core.compile_model(core.read_model(source), "CPU", settings)
        request = model.create_infer_request()

        def give(inputs: Sequence[Tensor]) -> None:
            for index, tensor in enumerate(inputs):
                request.set_input_tensor(index, self.tensor(tensor))

        def call() -> Any:
            request.infer()
            return request

        def call_with_copies() -> Any:
            copies = [_in_order(each) for each in inputs]
            give(copies)
            request.infer()
            return request

        def read(request: Any) -> Inputs:
            outputs = (request.get_output_tensor(index) for index in range(len(model.outputs)))
            return tuple(_from_openvino(each) for each in outputs)

        contiguous = all(each.is_contiguous() for each in inputs)
        if contiguous:
            give(inputs)
        return Prepared(call if contiguous else call_with_copies, read)

    def tensor(self, tensor: Tensor) -> Any:
        """The same memory as OpenVINO's tensor."""
        import openvino

        if tensor.dtype != torch.bfloat16:
            return openvino.Tensor(tensor.numpy(), shared_memory=True)
        bits, shape = tensor.view(torch.int16).numpy(), openvino.Shape(list(tensor.shape))
        return openvino.Tensor(bits, shape, openvino.Type.bf16)


class Iree(Peer):
    """IREE, from StableHLO as JAX lowers it."""

    name = "iree"
    form = (
        "context.invoke, arguments on the device, caching allocator; weights as constants, or as "
        "arguments where they are more than 64 MiB"
    )
    needs = ("iree.compiler", "iree.runtime", "jax")

    def available(self) -> str | None:
        if importlib.util.find_spec("iree") is None:
            return "iree is not installed (make bench-setup)"
        return super().available()

    def prepare(self, case: Case) -> Prepared:
        import iree.compiler as compiler
        import iree.runtime as runtime

        function, weights = jax_function(case)
        if sum(each.nbytes for each in weights) <= MAX_IREE_CONSTANT_BYTES:
            function, weights = _with_constants(function, weights), ()
        program = compiler.compile_str(
            _stablehlo(function, (*case.inputs, *weights)),
            input_type="stablehlo",
            target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )
        instance, device = _iree_device()
        module = runtime.VmModule.copy_buffer(instance, program)
        hal = runtime.create_hal_module(instance, device)
        context = runtime.VmContext(instance, [hal, module])
        entry = module.lookup_function("main")
        held = [_iree_view(device, each) for each in weights]
        inputs = case.inputs
        views = [_iree_view(device, each) for each in inputs]
        contiguous = all(each.is_contiguous() for each in inputs)
        expected = case.outputs()

        def call() -> Any:
            given = views if contiguous else [_iree_view(device, each) for each in inputs]
            arguments = runtime.VmVariantList(len(given) + len(held))
            for view in (*given, *held):
                arguments.push_ref(view)
            results = runtime.VmVariantList(len(expected))
            context.invoke(entry, arguments, results)
            return results

        return Prepared(call, lambda results: _from_iree(results, expected))


PEERS: tuple[Peer, ...] = (
    Monograph(),
    Eager(),
    Inductor(),
    InductorTuned(),
    Prepacked(),
    Xla(),
    OnnxRuntime(),
    OpenVino(),
    Iree(),
)
OURS = Monograph.name


def begin() -> None:
    """Forget what torch.compile compiled before: it keeps few programs and then stops compiling."""
    torch.compiler.reset()


def limit_threads(threads: int = THREADS) -> None:
    """Give this process and each contender so many threads; before the peers are imported.

    XLA and IREE ask the system how many processors they may use, and have no better setting.
    """
    global THREADS
    THREADS = threads
    processors = sorted(os.sched_getaffinity(0))[:THREADS]
    os.sched_setaffinity(0, processors)
    torch.set_num_threads(THREADS)


def _in_order(tensor: Tensor) -> Tensor:
    return tensor.contiguous()


# ONNX

_ONNX_TYPES = {
    torch.float32: 1,
    torch.int64: 7,
    torch.int32: 6,
    torch.float16: 10,
    torch.bfloat16: 16,
}


def exported(case: Case, opset: int) -> bytes:
    """The case as an ONNX file, written once for all who read it."""
    if opset not in case.exports:
        inputs = tuple(_in_order(each) for each in case.inputs)
        silent = contextlib.redirect_stdout(io.StringIO())
        with silent, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                case.module, inputs, dynamo=True, opset_version=opset, verbose=False
            )
        if program is None:
            raise Unsupported("torch's exporter gave no ONNX file")
        case.exports[opset] = program.model_proto.SerializeToString()
    return case.exports[opset]


def _from_openvino(output: Any) -> Tensor:
    if output.element_type.get_type_name() != "bf16":
        return torch.from_numpy(output.data.copy())
    import numpy

    bits = output.data.view(numpy.int16).copy()
    return torch.from_numpy(bits).view(torch.bfloat16)


# JAX


def jax_function(case: Case) -> tuple[Callable[..., Any], Sequence[Tensor]]:
    """The case as a function of its inputs and then of its constants; and those constants."""
    import jax

    # IREE knows no Shardy, and a single device has no use for it.
    jax.config.update("jax_use_shardy_partitioner", False)
    if case.function is None:
        return aten_to_jax.convert(case.module, case.inputs)
    function, spelling = case.function, jax_spelling()

    def main(*arrays: Any) -> Any:
        return function(spelling, *arrays)

    return main, case.constants


def _with_constants(function: Callable[..., Any], weights: Sequence[Tensor]) -> Callable[..., Any]:
    """The function of its inputs alone: weights are constants, as for every other contender."""
    constants = tuple(_jax_array(each) for each in weights)
    return lambda *inputs: function(*inputs, *constants)


def _jax_array(tensor: Tensor) -> Any:
    import jax

    return jax.dlpack.from_dlpack(_narrow(_in_order(tensor)))


def _narrow(tensor: Tensor) -> Tensor:
    """Integers as JAX has them by default."""
    return tensor.int() if tensor.dtype == torch.int64 else tensor


def _from_jax(result: Any) -> Inputs:
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(torch.utils.dlpack.from_dlpack(each) for each in results)


# IREE


def _stablehlo(function: Callable[..., Any], tensors: Sequence[Tensor]) -> str:
    import jax

    shapes = [jax.ShapeDtypeStruct(each.shape, _jax_array(each).dtype) for each in tensors]
    return str(jax.jit(function, keep_unused=True).lower(*shapes).compiler_ir("stablehlo"))


@cache
def _iree_device() -> tuple[Any, Any]:
    """One device for the whole process, with two workers."""
    import iree.runtime as runtime

    runtime.flags.parse_flags(f"--task_topology_group_count={THREADS}")
    device = runtime.get_driver("local-task").create_default_device(allocators=["caching"])
    atexit.register(_iree_device.cache_clear)
    return runtime.VmInstance(), device


def _iree_view(device: Any, tensor: Tensor) -> Any:
    import iree.runtime as runtime

    kinds = runtime.HalElementType
    types = {
        torch.float32: kinds.FLOAT_32,
        torch.float16: kinds.FLOAT_16,
        torch.bfloat16: kinds.BFLOAT_16,
        torch.int32: kinds.SINT_32,
        torch.int64: kinds.SINT_64,
    }
    tensor = _narrow(_in_order(tensor))
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return device.allocator.allocate_buffer_copy(
        memory_type=runtime.MemoryType.DEVICE_LOCAL,
        allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
        device=device,
        buffer=bits.numpy(),
        element_type=types[tensor.dtype],
    )


def _from_iree(results: Any, expected: Inputs) -> Inputs:
    import iree.runtime as runtime

    found = []
    for index, like in enumerate(expected):
        view = results.get_as_ref(index).deref(runtime.HalBufferView)
        data = bytearray(memoryview(view.map()).cast("B"))
        dtype = like.dtype
        if dtype == torch.int64 and view.byte_length == 4 * like.numel():
            dtype = torch.int32
        found.append(torch.frombuffer(data, dtype=dtype).reshape(view.shape))
    return tuple(found)

"""The last chapter: a small transformer block as native code, beside others who run it.

The block is written twice: with Monograph's ops, and with NumPy as one would write it by hand. The
NumPy one, in double precision, is what every answer is held against. Torch, where it is installed,
runs it a third time.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import monograph.functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.inspect.explain import Explanation, explain_executable
from monograph.inspect.measure import alternate, busy_note
from monograph.inspect.peers import need_compiler
from monograph.inspect.precise import relative_error
from monograph.inspect.tour.page import Page
from monograph.ir.graph import Value
from monograph.ir.types import Array
from monograph.program.arena import readable
from monograph.runtime.compiled import Executable
from monograph.runtime.thread_count import thread_count

TOKENS, WIDTH, HEADS, HIDDEN = 64, 128, 4, 512
ROUNDS = 15
NO_TORCH = (
    "torch is not installed, so there is less to compare with: pip install 'monograph[torch]' "
    "and run this chapter again."
)
Weights = Mapping[str, Array]
Call = Callable[[], Any]
Waiting = Callable[[str], AbstractContextManager[None]]


def _quietly(_: str) -> AbstractContextManager[None]:
    """Wait without a word."""
    return nullcontext()


def make_weights() -> dict[str, Array]:
    """The parameters of one block, small enough for values to stay near one."""
    generator = np.random.default_rng(3)
    shapes = {
        "scale1": (WIDTH,), "shift1": (WIDTH,),
        "qkv": (3 * WIDTH, WIDTH), "merge": (WIDTH, WIDTH),
        "scale2": (WIDTH,), "shift2": (WIDTH,),
        "up": (HIDDEN, WIDTH), "up_bias": (HIDDEN,),
        "down": (WIDTH, HIDDEN), "down_bias": (WIDTH,),
    }  # fmt: skip
    return {
        name: (generator.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in shapes.items()
    }


def block(x: Value, weights: Weights) -> Value:
    """A transformer block: attention and a perceptron, each after a norm, each added back."""
    w = {name: x.graph.add_weight(name, array) for name, array in weights.items()}
    qkv = F.linear(F.layer_norm(x, w["scale1"], w["shift1"]), w["qkv"])
    heads = F.transpose(F.reshape(qkv, (TOKENS, 3, HEADS, WIDTH // HEADS)), (1, 2, 0, 3))
    q, k, v = (F.reshape(part, (HEADS, TOKENS, WIDTH // HEADS)) for part in F.split(heads, 3))
    scores = q @ F.swapaxes(k, -1, -2) / float(np.sqrt(WIDTH // HEADS))
    mixed = F.transpose(F.softmax(scores, axis=-1) @ v, (1, 0, 2))
    x = x + F.linear(F.reshape(mixed, (TOKENS, WIDTH)), w["merge"])
    hidden = F.linear(F.layer_norm(x, w["scale2"], w["shift2"]), w["up"], w["up_bias"])
    return x + F.linear(F.gelu(hidden, "tanh"), w["down"], w["down_bias"])


def numpy_block(x: Array, w: Weights) -> Array:
    """The same by hand; in double precision if that is what it is given."""

    def norm(x: Array, scale: Array, shift: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + x.dtype.type(1e-5))
        normed: Array = centred / spread * scale + shift
        return normed

    qkv = norm(x, w["scale1"], w["shift1"]) @ w["qkv"].T
    q, k, v = qkv.reshape(TOKENS, 3, HEADS, WIDTH // HEADS).transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(-1, -2) / x.dtype.type(np.sqrt(WIDTH // HEADS))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = weights / weights.sum(axis=-1, keepdims=True) @ v
    x = x + mixed.transpose(1, 0, 2).reshape(TOKENS, WIDTH) @ w["merge"].T
    hidden = norm(x, w["scale2"], w["shift2"]) @ w["up"].T + w["up_bias"]
    curve = np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)).astype(x.dtype)
    result: Array = x + (0.5 * hidden * (1 + curve)).astype(x.dtype) @ w["down"].T + w["down_bias"]
    return result


def show_native(page: Page, *, inductor: bool = True, waiting: Waiting = _quietly) -> None:
    """Compile the block, say what became of it, and time it.

    ``inductor=False`` leaves torch.compile out, which takes its time; ``waiting`` is entered with
    a few words around what does.
    """
    page.chapter("9 · Native code", "What does compiling a transformer block buy?")
    weights = make_weights()
    graph = trace(lambda x: block(x, weights), f"f32[{TOKENS}, {WIDTH}]", name="block")
    started = time.perf_counter()
    with waiting("compiling"):
        executable = compile_graph(graph, Options(cache=False))
    seconds = time.perf_counter() - started
    explained = explain_executable(executable)
    _show_figures(page, explained, seconds)
    largest = max(explained.kernels, key=lambda kernel: len(kernel.nodes))
    page.say(f"Its largest kernel holds {len(largest.nodes)} nodes ({largest.kind} over "
             f"{largest.space}):")  # fmt: skip
    page.code("\n".join(largest.nodes))
    x = np.random.default_rng(4).normal(size=(TOKENS, WIDTH)).astype(np.float32)
    contenders, missing = _contenders(executable, weights, x, inductor)
    with waiting("torch.compile" if "torch.compile" in contenders else "running"):
        errors = _errors(contenders, weights, x)
    with waiting("measuring"):
        timings = alternate(contenders, ROUNDS)
    ours = timings["monograph"].best
    page.table(
        ("", "ms", "times ours", "error against float64"),
        [
            (name, f"{timing.best * 1e3:.3f}", f"{timing.best / ours:.1f}", f"{errors[name]:.1e}")
            for name, timing in timings.items()
        ],
    )
    for reason in missing:
        page.say(reason)
    busy = busy_note()
    if busy is not None:
        page.say(f"{busy}.")
    page.answer(
        f"{explained.nodes_lowered} nodes ran as {explained.launches} kernels in one native call, "
        f"moving {explained.bytes_moved / explained.bytes_apart:.0%} of the bytes and "
        f"{timings['numpy'].best / ours:.1f} times as fast as NumPy, with an error of "
        f"{errors['monograph']:.0e} (NumPy's: {errors['numpy']:.0e}). No C compiler was called."
    )


def _show_figures(page: Page, explained: Explanation, seconds: float) -> None:
    memory = explained.memory
    assert memory is not None, "the block has native code"
    distinct = sum(kernel.launches > 0 for kernel in explained.kernels)
    page.table(
        ("", "before", "after"),
        [
            ("nodes", explained.nodes_given, f"{explained.nodes_optimised} optimised"),
            (
                "kernels",
                f"{explained.nodes_lowered} lowered nodes",
                f"{explained.launches} launches, {distinct} distinct",
            ),
            (
                "bytes moved a call",
                readable(explained.bytes_apart),
                readable(explained.bytes_moved),
            ),
            ("intermediates", readable(memory.requested), readable(memory.peak)),
            ("in the interpreter", "", f"{explained.interpreted} nodes"),
            ("compiled in", "", f"{seconds:.2f} s"),
        ],
    )


def _contenders(
    executable: Executable, weights: Weights, x: Array, inductor: bool
) -> tuple[dict[str, Call], list[str]]:
    """Who runs the block here, and why others do not."""
    contenders: dict[str, Call] = {
        "monograph": lambda: executable.run([x])[0],
        "numpy": lambda: numpy_block(x, weights),
    }
    if importlib.util.find_spec("torch") is None:
        return contenders, [NO_TORCH]
    import torch

    torch.set_num_threads(thread_count())
    eager = _torch_block(weights)
    given = torch.from_numpy(x)
    contenders["torch eager"] = lambda: eager(given).numpy()
    if not inductor:
        return contenders, ["torch.compile was left out, to save its time."]
    try:
        need_compiler()
    except InputError as error:
        return contenders, [f"{error.message}, and there is none here: it is left out."]
    compiled = torch.no_grad()(torch.compile(eager))
    contenders["torch.compile"] = lambda: compiled(given).numpy()
    return contenders, []


def _torch_block(weights: Weights) -> Callable[..., Any]:
    """The same with torch's functions."""
    import torch
    from torch.nn import functional

    w = {name: torch.from_numpy(array) for name, array in weights.items()}

    def run(x: Any) -> Any:
        qkv = functional.layer_norm(x, (WIDTH,), w["scale1"], w["shift1"]) @ w["qkv"].T
        q, k, v = qkv.reshape(TOKENS, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = x + mixed.permute(1, 0, 2).reshape(TOKENS, WIDTH) @ w["merge"].T
        normed = functional.layer_norm(x, (WIDTH,), w["scale2"], w["shift2"])
        hidden = functional.linear(normed, w["up"], w["up_bias"])
        gelu = functional.gelu(hidden, approximate="tanh")
        return x + functional.linear(gelu, w["down"], w["down_bias"])

    return run


def _errors(contenders: Mapping[str, Call], weights: Weights, x: Array) -> dict[str, float]:
    """Of each answer, against the block by hand in double precision."""
    precise = {name: array.astype(np.float64) for name, array in weights.items()}
    reference = numpy_block(x.astype(np.float64), precise)
    return {
        name: relative_error(np.asarray(call()), reference) for name, call in contenders.items()
    }

"""What a model of the zoo is: how to build it, seeded, and call it as a function of tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Model:
    """One model: how to build it, what to call it with, and what cannot be done with it.

    ``class_name`` is a class of transformers, ``config`` what differs from its config's defaults;
    a function in it makes a config inside the config. ``no_torch``, ``no_onnx`` and ``no_train``
    say why torch's exporters refuse the model, if they do. Those that are not ``slow`` are tested
    by default. ``seed`` is that of the example inputs.
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    family: str
    inputs: Callable[[], Inputs]
    no_torch: str | None = None
    no_onnx: str | None = None
    no_train: str | None = None
    slow: bool = True
    seed: int = 1

    def build(self, *, training: bool = False) -> Flat:
        """The module, from seed 0, its outputs flattened; ``training`` turns dropout to zero."""
        import transformers

        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module_class = getattr(transformers, self.class_name)
            config = module_class.config_class(**built(self.config))
            module = module_class(config)
        _scatter_weights(module)
        made = Flat(module, tuple(self.inputs())).train(training)
        _without_dropout(made)
        return made

    def example(self) -> tuple[Tensor, ...]:
        """The example inputs, by position, in the order that ``Flat`` takes them."""
        torch.manual_seed(self.seed)
        return tuple(self.inputs().values())


class Flat(nn.Module):
    """A transformers model as a function from tensors to tensors.

    Inputs come by position; outputs are the floating-point tensors of the model's output in order,
    with caches (key-value pairs, state-space states) left out.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Call the model by keyword and keep its main outputs."""
        output = self.model(**dict(zip(self.names, tensors, strict=True)))
        return tuple(_tensors(output))


_CACHES = ("past_key_values", "cache_params", "state", "encoder_last_hidden_state")


def _tensors(output: Any) -> Iterator[Tensor]:
    """The float tensors of a model's output, in order, each of them once."""
    seen: set[int] = set()
    for name, item in output.items():
        if name in _CACHES:
            continue
        parts = item.items() if isinstance(item, dict) else [(name, item)]
        for inner, tensor in parts:
            wanted = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if wanted and inner not in _CACHES and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def built(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config's arguments, with those that are functions (nested configs) called."""
    return {key: value() if callable(value) else value for key, value in config.items()}


def _scatter_weights(module: nn.Module) -> None:
    """Give every weight, gain, bias and running statistic a value of its own.

    Fresh models hold biases of zero, gains of one and tiny weights: many mistakes (a bias left
    out, a norm skipped) would not show.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point() or "inv_freq" in name or "running_var" in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.add_(0.05 * noise.to(tensor.dtype))


def _without_dropout(module: nn.Module) -> None:
    """Make training deterministic: a test of gradients cannot share its dice with torch.

    Parts that drop whole layers roll their dice even when none is to be dropped, and others look
    for infinities, which torch.export cannot capture: they may believe that nobody trains.
    """
    for part in module.modules():
        for name in _DROPOUTS:
            if isinstance(vars(part).get(name), float):
                setattr(part, name, 0.0)
        config = vars(part).get("config")
        drops = any(hasattr(config, name) for name in ("layerdrop", "encoder_layerdrop"))
        if drops or type(part).__name__ in _LOOKING:
            part.training = False


_LOOKING = ("DetrEncoderLayer",)
_DROPOUTS = (
    "p", "drop_prob", "dropout", "attention_dropout", "activation_dropout", "layerdrop",
    "dropout_p", "dropout_prob", "dropout_rate", "attn_dropout",
)  # fmt: skip

"""Tasks with a real score: data that ships with scikit-learn and Python, models that train here.

Each task gives a trained torch model, batches to calibrate with, and a test set that neither
training nor calibration saw. Everything is drawn from fixed seeds.
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

CONTEXT = 32
"""Characters that the language model sees."""
WIDTH = 64


@dataclass(frozen=True)
class Task:
    """A trained model, its calibration batches, and what it is scored on."""

    name: str
    model: nn.Module
    calibration: list[np.ndarray]
    inputs: np.ndarray
    targets: np.ndarray

    def score(self, run: Callable[[np.ndarray], np.ndarray]) -> float:
        """The share of right answers in percent; ``run`` maps a batch to scores of classes."""
        size = self.calibration[0].shape[0]
        right = total = 0
        for start in range(0, len(self.inputs) - size + 1, size):
            scores = np.asarray(run(self.inputs[start : start + size]))
            answers = self.targets[start : start + size]
            right += int((scores.argmax(-1) == answers).sum())
            total += answers.size
        return 100.0 * right / total

    def eager(self, batch: np.ndarray) -> np.ndarray:
        """The scores that torch computes."""
        with torch.no_grad():
            return self.model(torch.from_numpy(batch)).numpy()

    def onnx(self) -> bytes:
        """The model as torch exports it."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                self.model,
                (torch.from_numpy(self.calibration[0]),),
                file,
                dynamo=False,
                input_names=["x"],
                output_names=["y"],
                opset_version=17,
            )
        return file.getvalue()


class Digits(nn.Module):
    """Convolutions with batch norms, a residual sum, and pools."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))
        self.third = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.classes = nn.Linear(32 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = torch.relu(x + self.second(x))
        x = nn.functional.max_pool2d(self.third(x), 2)
        return self.classes(nn.functional.avg_pool2d(x, 2).flatten(1))


def mlp(inputs: int, outputs: int, width: int = 128) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


class Characters(nn.Module):
    """A transformer of two layers that predicts the next character."""

    def __init__(self, alphabet: int, layers: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(alphabet, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.classes = nn.Linear(WIDTH, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        y = self.table(x) + self.places
        for layer in self.layers:
            y = layer(y)
        return self.classes(self.norm(y))


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each after a norm."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.outputs = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = self.inputs(self.norm1(x)).view(rows, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outputs(y.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def train(
    model: nn.Module, x: Any, y: Any, steps: int, rate: float = 3e-3, batch: int = 64
) -> nn.Module:
    """Minimize cross entropy with Adam, the rate falling to zero; one thread, fixed seed."""
    inputs, targets = torch.as_tensor(x), torch.as_tensor(y)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    generator = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(steps):
        chosen = torch.randint(0, len(inputs), (batch,), generator=generator)
        scores = model(inputs[chosen])
        loss = nn.functional.cross_entropy(scores.flatten(0, -2), targets[chosen].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def _images() -> tuple[np.ndarray, ...]:
    data = load_digits()
    x = (data.images / 16.0).astype(np.float32)[:, None]
    return tuple(train_test_split(x, data.target, test_size=0.4, random_state=0))


def digits_conv(steps: int = 600) -> Task:
    """Handwritten digits of 8×8 pixels, by a small convolutional net."""
    torch.manual_seed(0)
    x, x_test, y, y_test = _images()
    return _task("digits conv", train(Digits(), x, y, steps), x, x_test, y_test, 16)


def digits_mlp(steps: int = 600) -> Task:
    """The same digits, by a multilayer perceptron."""
    torch.manual_seed(0)
    x, x_test, y, y_test = _images()
    x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    return _task("digits MLP", train(mlp(64, 10), x, y, steps), x, x_test, y_test, 16)


def tabular_mlp(steps: int = 400) -> Task:
    """Breast cancer by thirty measurements of different sizes, by a multilayer perceptron."""
    torch.manual_seed(0)
    data = load_breast_cancer()
    x, x_test, y, y_test = train_test_split(
        data.data.astype(np.float32), data.target, test_size=0.5, random_state=0
    )
    mean, deviation = x.mean(0), x.std(0)
    x, x_test = (x - mean) / deviation, (x_test - mean) / deviation
    model = train(mlp(30, 2, 64), x, y, steps, rate=1e-3)
    return _task("tabular MLP", model, x, x_test, y_test, 4)


def characters(steps: int = 500) -> Task:
    """The next character of a module of Python's library."""
    torch.manual_seed(0)
    text = python_text()
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(each) for each in text], np.int64)
    starts = np.arange(0, len(codes) - CONTEXT - 1, CONTEXT // 2)
    windows = np.stack([codes[s : s + CONTEXT + 1] for s in starts])
    held = np.arange(len(windows)) % 5 == 0
    near = np.convolve(held, [1, 1, 1], "same") > 0  # neighbours overlap
    x, y = windows[~near][:, :-1], windows[~near][:, 1:]
    model = train(Characters(len(alphabet)), x, y, steps, rate=4e-3, batch=32)
    test = windows[held]
    return _task("characters", model, x, test[:, :-1], test[:, 1:], 16)


def python_text() -> str:
    """A module of Python's library: text that every Python has."""
    return Path(argparse.__file__).read_text()


def _task(
    name: str,
    model: nn.Module,
    x: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    batch: int,
) -> Task:
    calibration = [np.ascontiguousarray(x[k * batch : (k + 1) * batch]) for k in range(16)]
    whole = len(x_test) // batch * batch
    return Task(name, model, calibration, x_test[:whole], y_test[:whole])


TASKS: dict[str, Callable[..., Task]] = {
    "digits-conv": digits_conv,
    "digits-mlp": digits_mlp,
    "tabular-mlp": tabular_mlp,
    "characters": characters,
}

"""Models of speech, through torch's exporters: synthesis, recognition, voices and languages."""

from __future__ import annotations

import math

import numpy as np
import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.shipped.exporters import by_dynamo, by_torchscript
from benchmarks.shipped.images import calibrated
from benchmarks.shipped.model import Feed, Sizes, normal, shipped

RATE = 16000
PHONEMES = 130


class Synthesiser(nn.Module):
    """VITS from phonemes to a wave, its noise silenced so that runtimes can be compared.

    Relative attention, durations through invertible splines that index by masks, their expansion to
    frames by a cumulative sum, flows of WaveNet layers, and transposed convolutions.
    """

    def __init__(self, small: bool) -> None:
        super().__init__()
        from transformers import VitsConfig, VitsModel

        hidden = 16 if small else 96
        config = VitsConfig(
            vocab_size=PHONEMES,
            hidden_size=hidden,
            num_hidden_layers=1 if small else 4,
            num_attention_heads=2,
            ffn_dim=4 * hidden,
            flow_size=hidden,
            spectrogram_bins=65,
            upsample_initial_channel=16 if small else 128,
            upsample_rates=[4, 4] if small else [8, 8, 2, 2],
            upsample_kernel_sizes=[8, 8] if small else [16, 16, 4, 4],
            resblock_kernel_sizes=[3] if small else [3, 7, 11],
            resblock_dilation_sizes=[[1, 3]] if small else [[1, 3, 5]] * 3,
            wavenet_dilation_rate=1,
            prior_encoder_num_flows=1 if small else 4,
            prior_encoder_num_wavenet_layers=1 if small else 4,
            duration_predictor_num_flows=2 if small else 4,
        )
        self.model = VitsModel(config)  # type: ignore[no-untyped-call]
        self.model.noise_scale = self.model.noise_scale_duration = 0.0  # type: ignore[assignment]

    def forward(self, phonemes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The wave, and how many samples of it count."""
        made = self.model(input_ids=phonemes, attention_mask=mask, return_dict=False)
        return made[0], made[1]


def phonemes(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """A sentence of phonemes."""
    shape = sizes["batch"], sizes["phonemes"]
    mask = np.ones(shape, np.int64)
    return {"input_ids": generator.integers(0, PHONEMES, shape), "attention_mask": mask}


@shipped(
    "vits",
    "speech",
    "torchscript 15",
    feed=phonemes,
    sizes={"batch": 1, "phonemes": 40},
    small={"batch": 1, "phonemes": 7},
    tolerance=1e-3,
)
def synthesiser(small: bool) -> ModelProto:
    """VITS with a free batch and length; the length of the wave follows from the contents."""
    free = {0: "batch", 1: "phonemes"}
    axes = {"input_ids": free, "attention_mask": free}
    axes |= {"waveform": {0: "batch", 1: "samples"}, "lengths": {0: "batch"}}
    examples = torch.randint(0, PHONEMES, (1, 12)), torch.ones(1, 12, dtype=torch.int64)
    inputs, outputs = ("input_ids", "attention_mask"), ("waveform", "lengths")
    return by_torchscript(Synthesiser(small), examples, inputs, outputs, axes, 15)


class WaveRecogniser(nn.Module):
    """wav2vec 2.0 with a head for characters."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

        hidden = 32 if small else 256
        config = Wav2Vec2Config(
            vocab_size=32,
            hidden_size=hidden,
            num_hidden_layers=1 if small else 4,
            num_attention_heads=4,
            intermediate_size=4 * hidden,
            conv_dim=(16 if small else 128,) * 7,
            num_conv_pos_embedding_groups=4,
        )
        self.model = Wav2Vec2ForCTC(config)  # type: ignore[no-untyped-call]

    def forward(self, wave: Tensor) -> Tensor:
        """The scores of characters [batch, frames, characters]."""
        scores: Tensor = self.model(wave).logits
        return scores


def waves(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """Sound at 16 kHz."""
    return {"input_values": normal(generator, sizes["batch"], sizes["samples"])}


WAVES = {"batch": 1, "samples": RATE}
SMALL_WAVES = {"batch": 2, "samples": 2000}


@shipped(
    "wav2vec2", "speech", "torchscript 14", feed=waves, sizes=WAVES, small=SMALL_WAVES
)  # fmt: skip
def wave_recogniser(small: bool) -> ModelProto:
    """wav2vec 2.0 with a free batch and length."""
    axes = {"input_values": {0: "batch", 1: "samples"}, "logits": {0: "batch", 1: "frames"}}
    example = (torch.randn(1, 4000),)
    model = WaveRecogniser(small)
    return by_torchscript(model, example, ["input_values"], ["logits"], axes, 14)


class Spectrum(nn.Module):
    """The logarithm of a mel spectrum, by a short-time Fourier transform."""

    def __init__(self, size: int, hop: int, bands: int) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("bands", torch.rand(size // 2 + 1, bands) / size)

    def forward(self, wave: Tensor) -> Tensor:
        """The spectrum [batch, bands, frames]."""
        window: Tensor = self.window  # type: ignore[assignment]
        parts = torch.stft(
            wave, self.size, self.hop, window=window, center=True, return_complex=False
        )
        power = (parts**2).sum(-1)
        bands = torch.matmul(power.transpose(1, 2), self.bands)  # type: ignore[arg-type]
        spectrum = torch.log(bands + 1e-5).transpose(1, 2)
        spread = spectrum.std(2, keepdim=True)
        return (spectrum - spectrum.mean(2, keepdim=True)) / (spread + 1e-5)


class Attending(nn.Module):
    """A layer of a transformer, its norms before what they feed."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.joined, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        batch, frames, hidden = x.shape
        parts = self.joined(self.before(x)).view(batch, frames, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        read = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(read.transpose(1, 2).reshape(batch, frames, hidden))
        made: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return made


class Recogniser(nn.Module):
    """A recogniser with its front end: spectrum, strided convolutions, a transformer."""

    def __init__(self, hidden: int, layers: int, bands: int) -> None:
        super().__init__()
        self.spectrum = Spectrum(400, 160, bands)
        self.strided = nn.Sequential(
            nn.Conv2d(1, hidden // 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(hidden // 4, 32, 3, 2, 1)
        )
        self.inwards = nn.Linear(32 * bands // 4, hidden)
        self.layers = nn.ModuleList(Attending(hidden, 4) for _ in range(layers))
        self.characters = nn.Linear(hidden, 40)

    def forward(self, wave: Tensor) -> Tensor:
        """The logarithms of probabilities [batch, frames, characters]."""
        x = F.relu(self.strided(self.spectrum(wave).unsqueeze(1)))
        batch, channels, bands, frames = x.shape
        x = x.permute(0, 3, 1, 2).reshape(batch, frames, channels * bands)
        x = self.inwards(x) + _positions(frames, self.inwards.out_features)
        for layer in self.layers:
            x = layer(x)
        return F.log_softmax(self.characters(x), -1)


def _positions(frames: Tensor | int, size: int) -> Tensor:
    """Sines and cosines, computed in the graph as exporters leave them."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
    angles = torch.arange(frames)[:, None] * rates  # type: ignore[arg-type]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


@shipped(
    "stft-ctc", "speech", "torchscript 17", feed=waves, sizes=WAVES, small=SMALL_WAVES
)  # fmt: skip
def recogniser(small: bool) -> ModelProto:
    """The recogniser with STFT in the graph, a free batch and length."""
    model = Recogniser(32, 1, 16) if small else Recogniser(256, 4, 80)
    axes = {"input_values": {0: "batch", 1: "samples"}, "logits": {0: "batch", 1: "frames"}}
    example = (torch.randn(1, 4000),)
    return by_torchscript(model, example, ["input_values"], ["logits"], axes, 17)


class VoiceAtRate(nn.Module):
    """A detector of voices for one rate (as Silero's): a transform as convolution, an LSTM cell."""

    def __init__(self, window: int, hidden: int) -> None:
        super().__init__()
        bins = window // 2 + 1
        angles = 2 * math.pi / window * torch.arange(bins)[:, None] * torch.arange(window)
        basis = torch.cat([angles.cos(), -angles.sin()]) * torch.hann_window(window)
        self.register_buffer("basis", basis.unsqueeze(1))
        self.bins, self.hop, self.side = bins, window // 2, window // 4
        self.first = nn.Conv1d(bins, hidden, 3, 1, 1)
        self.second = nn.Conv1d(hidden, hidden // 2, 3, 2, 1)
        self.third = nn.Conv1d(hidden // 2, hidden // 2, 3, 2, 1)
        self.fourth = nn.Conv1d(hidden // 2, hidden, 3, 1, 1)
        self.memory = nn.LSTM(hidden, hidden, batch_first=True)
        self.voice = nn.Conv1d(hidden, 1, 1)

    def forward(self, wave: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The probability of a voice, and the next state."""
        padded = F.pad(wave.unsqueeze(1), [0, self.side], mode="reflect")
        parts = F.conv1d(padded, self.basis, stride=self.hop)  # type: ignore[arg-type]
        size = torch.sqrt(parts[:, : self.bins] ** 2 + parts[:, self.bins :] ** 2)
        x = F.relu(self.second(F.relu(self.first(size))))
        x = F.relu(self.fourth(F.relu(self.third(x))))
        read, (hidden, cell) = self.memory(x.transpose(1, 2), (state[0:1], state[1:2]))
        voice = torch.sigmoid(self.voice(F.relu(read.transpose(1, 2)))).mean(2)
        return voice, torch.cat([hidden, cell])


class VoiceDetector(nn.Module):
    """One graph for both rates: which is used is an If on an input."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fast, self.slow = VoiceAtRate(256, hidden), VoiceAtRate(128, hidden)

    def forward(self, wave: Tensor, state: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """The probability of a voice, and the next state."""
        if rate == 16000:
            voice, after = self.fast(wave, state)
        else:
            voice, after = self.slow(wave, state)
        return voice, after


def _chunks(sizes: Sizes, generator: np.random.Generator) -> Feed:
    batch, hidden = sizes["batch"], sizes["hidden"]
    return {
        "input": normal(generator, batch, sizes["samples"]),
        "state": 0.1 * normal(generator, 2, batch, hidden),
        "sr": np.array(RATE, np.int64),
    }


@shipped(
    "vad",
    "speech",
    "torchscript 16, scripted",
    feed=_chunks,
    sizes={"batch": 1, "samples": 512, "hidden": 128},
    small={"batch": 2, "samples": 512, "hidden": 16},
)
def voice_detector(small: bool) -> ModelProto:
    """The detector of voices, scripted, so that the branch stays in the graph."""
    hidden = 16 if small else 128
    model = torch.jit.script(VoiceDetector(hidden).eval())  # type: ignore[no-untyped-call]
    axes = {"input": {0: "batch", 1: "samples"}, "state": {1: "batch"}}
    axes |= {"output": {0: "batch"}, "stateN": {1: "batch"}}
    examples = torch.randn(1, 512), torch.zeros(2, 1, hidden), torch.tensor(RATE)
    names = ("input", "state", "sr")
    return by_torchscript(model, examples, names, ("output", "stateN"), axes, 16)


class Dilated(nn.Module):
    """ECAPA's block: dilated convolutions one after the other on parts, then a gate."""

    def __init__(self, channels: int, dilation: int, parts: int = 4) -> None:
        super().__init__()
        part = channels // parts
        self.first, self.last = _conv(channels, channels, 1), _conv(channels, channels, 1)
        self.parts = nn.ModuleList(_conv(part, part, 3, dilation) for _ in range(parts - 1))
        self.gate = nn.Sequential(
            nn.Conv1d(channels, channels // 4, 1), nn.ReLU(), nn.Conv1d(channels // 4, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        first, *others = self.first(x).chunk(len(self.parts) + 1, 1)
        made = [first]
        for layer, part in zip(self.parts, others, strict=True):
            made.append(layer(part + made[-1]))
        y = self.last(torch.cat(made, 1))
        return x + y * torch.sigmoid(self.gate(y.mean(2, keepdim=True)))


def _conv(inputs: int, outputs: int, size: int, dilation: int = 1) -> nn.Module:
    padding = dilation * (size // 2)
    conv = nn.Conv1d(inputs, outputs, size, padding=padding, dilation=dilation)
    return nn.Sequential(conv, nn.ReLU(), nn.BatchNorm1d(outputs))


class LanguageIdentifier(nn.Module):
    """ECAPA-TDNN: which language is spoken, from a spectrum of any length."""

    def __init__(self, channels: int, bands: int, languages: int) -> None:
        super().__init__()
        self.first = _conv(bands, channels, 5)
        self.blocks = nn.ModuleList(Dilated(channels, dilation) for dilation in (2, 3, 4))
        self.joined = _conv(3 * channels, 2 * channels, 1)
        self.attention = nn.Sequential(
            nn.Conv1d(6 * channels, 32, 1), nn.Tanh(), nn.Conv1d(32, 2 * channels, 1)
        )
        self.last = nn.Sequential(nn.BatchNorm1d(4 * channels), nn.Linear(4 * channels, languages))

    def forward(self, spectrum: Tensor) -> Tensor:
        """The scores of languages."""
        x, kept = self.first(spectrum), []
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        x = self.joined(torch.cat(kept, 1))
        mean, spread = x.mean(2, keepdim=True), x.var(2, keepdim=True).clamp(min=1e-6).sqrt()
        seen = torch.cat([x, mean.expand_as(x), spread.expand_as(x)], 1)
        weights = self.attention(seen).softmax(2)
        mean = (weights * x).sum(2)
        spread = ((weights * x * x).sum(2) - mean * mean).clamp(min=1e-6).sqrt()
        scores: Tensor = self.last(torch.cat([mean, spread], 1))
        return scores


def _spectra(sizes: Sizes, generator: np.random.Generator) -> Feed:
    return {"spectrum": normal(generator, sizes["batch"], sizes["bands"], sizes["frames"])}


@shipped(
    "language",
    "speech",
    "dynamo 20",
    feed=_spectra,
    sizes={"batch": 1, "bands": 80, "frames": 300},
    small={"batch": 2, "bands": 16, "frames": 30},
)
def language_identifier(small: bool) -> ModelProto:
    """The identifier with a free batch and length."""
    bands = 16 if small else 80
    made = LanguageIdentifier(16 if small else 256, bands, 50)
    model = calibrated(made, torch.randn(4, bands, 40))
    free = {0: "batch", 2: "frames"}
    example = (torch.randn(2, bands, 40),)
    return by_dynamo(model, example, ["spectrum"], ["languages"], [free], 20)

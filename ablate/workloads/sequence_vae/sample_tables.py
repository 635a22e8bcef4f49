"""What a trained model writes, as tables of text: samples of its prior, reconstructions, latent traversals."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ablate.workloads.sequence_vae.data import BOS, EOS, PAD
from ablate.workloads.sequence_vae.evaluation import BATCH, HeldOut, posterior_parameters
from ablate.workloads.sequence_vae.keyed_noise import keyed_noise
from ablate.workloads.sequence_vae.latent import ContinuousLatent, LatentKind
from ablate.workloads.sequence_vae.model import SequenceVAE

SAMPLES, EXAMPLES, UNITS, SETTINGS = 8, 8, 6, 5
LONGEST = 64
"""Tokens after which a text is cut; it then ends in an ellipsis."""

Reader = Callable[[Sequence[int]], str]


@torch.no_grad()
def sample_tables(model: SequenceVAE, data: HeldOut, texts: Sequence[str], seed: int, device: str) -> dict[str, str]:
    """Tab-separated tables by file name.

    samples: z from the prior, then tokens from p(x|z), with the same noise in every trial of this seed.
    reconstructions: of the first examples, the likeliest token at each place given the mode of q(z|x).
    traversals: the first example's mode with one unit set to other values, for the units of the highest rate.

    Args:
        data: the split whose first examples are shown.
        texts: what each token stands for; empty: letters stand for them.
        seed: of the noise.
    """
    read = _reader(texts, model.embedding.token.num_embeddings)
    parameters = posterior_parameters(model, data, slice(0, BATCH), device).to(device)
    modes = model.latent.draw(parameters, torch.zeros(len(parameters), model.latent.size, device=device))
    tokens = data.split.tokens[:EXAMPLES].tolist()
    return {
        "samples.tsv": _table(
            ("draw", "sample"), ((str(draw), text) for draw, text in enumerate(_samples(model, seed, read, device)))
        ),
        "reconstructions.tsv": _table(
            ("example", "reconstruction"),
            zip(map(read, (row[1:] for row in tokens)), write(model, modes[:EXAMPLES], read), strict=True),
        ),
        "traversals.tsv": _traversals(model, parameters, modes, read),
    }


def write(model: SequenceVAE, z: Tensor, read: Reader, noise: Tensor | None = None) -> list[str]:
    """A text for each z [n, Z]: at each place the token of the highest score, to which noise [n, L, V] is added.

    Standard Gumbel noise makes it a draw from p(x|z) (Gumbel-max).
    """
    longest = min(LONGEST, model.embedding.position.num_embeddings - 1)
    tokens = torch.full((len(z), longest + 1), BOS, device=z.device)
    for place in range(longest):
        prefix = tokens[:, : place + 1]
        logits = model.decode(prefix, torch.ones_like(prefix, dtype=torch.bool), z)[:, -1]
        logits[:, [PAD, BOS]] = -torch.inf
        tokens[:, place + 1] = (logits if noise is None else logits + noise[:, place]).argmax(-1)
        if bool((tokens == EOS).any(1).all()):
            break
    return [read(row[1:]) for row in tokens.tolist()]


def _samples(model: SequenceVAE, seed: int, read: Reader, device: str) -> list[str]:
    latent, vocabulary = model.latent, model.embedding.token.num_embeddings
    noise = keyed_noise(seed, range(SAMPLES), (latent.size,), latent.noise_kind).to(device)
    z = latent.draw(torch.zeros(SAMPLES, latent.parameters, device=device), noise)
    of_tokens = keyed_noise(seed + 1, range(SAMPLES), (LONGEST, vocabulary), "gumbel").to(device)
    return write(model, z, read, of_tokens)


def _traversals(model: SequenceVAE, parameters: Tensor, modes: Tensor, read: Reader) -> str:
    """A row a unit: its rate, and what the first example becomes for each of its values."""
    rate = model.latent.kl(parameters).mean(0)
    rows = []
    for unit in rate.argsort(descending=True)[:UNITS].tolist():
        names, z = _settings(model.latent, modes, unit)
        written = write(model, z, read)
        cells = [f"{name}: {text}" for name, text in zip(names, written, strict=True)]
        rows.append([str(unit), f"{float(rate[unit]):.3g}", *cells, *[""] * (SETTINGS - len(cells))])
    return _table(("unit", "rate_nats", *(f"setting_{place + 1}" for place in range(SETTINGS))), rows)


def _settings(latent: LatentKind, modes: Tensor, unit: int) -> tuple[list[str], Tensor]:
    """Values of a unit, by name, and the first mode with each of them: -2 to 2, or the most used categories."""
    if isinstance(latent, ContinuousLatent):
        values = torch.linspace(-2, 2, SETTINGS)
        z = modes[:1].repeat(SETTINGS, 1)
        z[:, unit] = values.to(z)
        return [f"{value:+.0f}" for value in values.tolist()], z
    block = slice(unit * latent.categories, (unit + 1) * latent.categories)
    used = modes[:, block].sum(0).argsort(descending=True, stable=True)[:SETTINGS]
    z = modes[:1].repeat(len(used), 1)
    z[:, block] = torch.eye(latent.categories, device=z.device)[used]
    return [str(category) for category in used.tolist()], z


def _reader(texts: Sequence[str], vocabulary: int) -> Reader:
    """Tokens to text, up to the end of the sequence."""
    symbols = texts or [*"   ", *(chr(ord("a") + i) if vocabulary <= 29 else f" {i + 3}" for i in range(vocabulary))]

    def read(tokens: Sequence[int]) -> str:
        end = tokens.index(EOS) if EOS in tokens else len(tokens)
        text = "".join(symbols[token] for token in tokens[:end][:LONGEST])
        return text if end < len(tokens) and end <= LONGEST else f"{text}…"

    return read


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows([head, *rows])
    return stream.getvalue()

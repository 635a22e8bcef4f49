"""From text to tokens: bytes, characters, byte-pair encoding, or a tokenizer of one's own.

Tokens 0, 1 and 2 are PAD, BOS and EOS; those of the text begin at 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import regex

from ablate.errors import StudyError
from ablate.workloads.sequence_vae.data import EOS

FIRST = EOS + 1
SPECIAL = ("<pad>", "<bos>", "<eos>")
GRAPHEME = regex.compile(r"\X")

COMBINING = "\u0300"
"""The first code point that joins another one; all before it stand alone, but for a line end."""

Encode = Callable[[Sequence[str], int], Iterator[Sequence[int]]]
"""(texts, limit) -> the first `limit` + 1 tokens of each text, all where it has no more."""


@dataclass(frozen=True)
class Tokenizer:
    """Cuts texts into tokens.

    Attributes:
        texts: what each token stands for, the special ones included.
        unknown: the token that stands for what the vocabulary lacks, or None.
        save: writes a tokenizer.json into a folder, for other programs; None where there is none.
    """

    texts: tuple[str, ...]
    encode: Encode
    unknown: int | None = None
    save: Callable[[Path], None] | None = None


def graphemes(text: str) -> Iterable[str]:
    """What a reader takes for a character, combining marks and joined emoji with their base (Unicode annex 29)."""
    if max(text, default="") < COMBINING and "\r" not in text:
        return text
    return (found.group() for found in GRAPHEME.finditer(text))


def of_bytes() -> Tokenizer:
    """The bytes of UTF-8."""

    def encode(texts: Sequence[str], limit: int) -> Iterator[Sequence[int]]:
        for text in texts:
            yield [byte + FIRST for byte in text[: limit + 1].encode()[: limit + 1]]

    return Tokenizer((*SPECIAL, *(chr(b) if 32 <= b < 127 else f"<0x{b:02X}>" for b in range(256))), encode)


def of_characters(counts: Counter[str], size: int) -> Tokenizer:
    """The most frequent graphemes, equal counts in the order of their code points; the others are one token."""
    unknown = FIRST
    kept = sorted(counts, key=lambda found: (-counts[found], found))[: size - FIRST - 1]
    tokens = {text: FIRST + 1 + place for place, text in enumerate(kept)}

    def encode(texts: Sequence[str], limit: int) -> Iterator[Sequence[int]]:
        for text in texts:
            yield [tokens.get(found, unknown) for found in islice(graphemes(text), limit + 1)]

    return Tokenizer((*SPECIAL, "<unknown>", *kept), encode, unknown)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes as in GPT-2, so that nothing is unknown)."""
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, models, pre_tokenizers, trainers

    model = Model(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    return _of_library(model, shift=0, names=range(FIRST, model.get_vocab_size()))


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json of Hugging Face tokenizers; its token i is i + 3 here.

    Raises: StudyError for a file that is none.
    """
    from tokenizers import Tokenizer as Model

    try:
        model = Model.from_str(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # the library raises nothing more specific
        raise StudyError(f"{path} is no tokenizer.json of Hugging Face tokenizers: {error}") from error
    model.no_truncation()
    model.no_padding()
    unknown = model.token_to_id(str(getattr(model.model, "unk_token", None)))
    return _of_library(model, FIRST, range(model.get_vocab_size()), None if unknown is None else unknown + FIRST)


def _of_library(model: Any, shift: int, names: Iterable[int], unknown: int | None = None) -> Tokenizer:
    def encode(texts: Sequence[str], limit: int) -> Iterator[Sequence[int]]:
        # the whole text, since its end can change how its beginning is cut
        for found in model.encode_batch_fast(list(texts), add_special_tokens=False):
            yield [token + shift for token in found.ids[: limit + 1]]

    decoded = (model.decode([token], skip_special_tokens=False) or str(model.id_to_token(token)) for token in names)
    return Tokenizer(
        (*SPECIAL, *decoded), encode, unknown, save=lambda folder: model.save(str(folder / "tokenizer.json"))
    )

"""Translator: texts in, translations out, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import huggingface
from unmask.data.bitext.batching import collate_pairs
from unmask.data.bitext.numbers import NoVector
from unmask.errors import UnmaskError
from unmask.generate import Hypothesis, Limits, Sampling, Search, generate_all
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision
from unmask.models.inference_transformer import settled, writer_layout
from unmask.serve.alignment import Alignment
from unmask.visualize.reading import twin

LONGEST = 512  # tokens of a source, where the model knows no end
WAITING = 1_024  # texts that are gathered, so that those of one length are translated together


@dataclass(frozen=True)
class Translated:
    """A translation of a text.

    text             as written, special tokens left out
    score            what it was ranked by, see `Search`; of a draw, its log-probability
    log_probability  natural logarithm of the model's probability of its tokens
    pieces           its tokens; `probabilities` has that of each, and of the end where it ended by itself
    finished         it ended by itself, and was not cut at the limit of the length
    """

    text: str
    score: float
    log_probability: float
    pieces: list[str]
    probabilities: list[float]
    finished: bool


@dataclass(frozen=True)
class Answer:
    """What was made of a source: its translations, best first, or as they were drawn; none for an empty text.

    cut      its end was not read
    unknown  pieces of it that the vocabulary lacks
    """

    source: str
    translations: list[Translated]
    cut: bool = False
    unknown: int = 0

    @property
    def text(self) -> str:
        """The best translation; empty for an empty text."""
        return self.translations[0].text if self.translations else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        found = {"source": self.source, "translations": [vars(one) for one in self.translations]}
        faults = {"cut": self.cut, "unknown": self.unknown}
        return {**found, **{name: value for name, value in faults.items() if value}}


class Translator:
    """A folder that `unmask train` wrote, or one of Marian, as a function from texts to texts.

    search     how to search; None: as the folder says, else greedy
    tokens     of a batch, padding included
    precision  "bf16": a Transformer multiplies in bfloat16, several times as fast as in float32 where the processor has
               it; sums, norms and probabilities stay float32. "auto": where the device is known to have it

    `settled` says what is computed. Raises UnmaskError for a folder that holds no model of this kind, or no tokenizer.
    """

    def __init__(
        self,
        folder: Path | str,
        search: Search | Sampling | None = None,
        *,
        tokens: int = 16_384,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
    ) -> None:
        loaded = huggingface.load(folder, huggingface.ENCODER_DECODER)
        if loaded.tokenizer is None:
            raise UnmaskError(
                f"{folder} has no tokenizer: put its source.spm, target.spm and vocab.json into the folder."
            )
        self.model, self.tokenizer = placed(loaded.model, device), loaded.tokenizer
        self.folder = folder
        self.settled = settled(self.model, precision)
        self.writer = writer_layout(self.model, self.settled.precision)
        self.search = search or searching(loaded.settings)
        self.tokens, self.device = tokens, device
        self.longest = min(self.model.positions or LONGEST, LONGEST)
        self.cut = self.unknown = 0  # sources so far that were cut, and that had characters the vocabulary lacks
        self.endless = 0  # texts so far that were written and did not end by themselves

    def __call__(self, texts: Iterable[str]) -> list[str]:
        """The best translation of each text, in order."""
        return [answer.text for answer in self.stream(texts)]

    def stream(self, texts: Iterable[str]) -> Iterator[Answer]:
        """An answer for each text, in order, as they come; a text without a token has no translations. Raises
        UnmaskError for what is no vector, where the model reads them."""
        remaining, before = iter(texts), 0
        generator = self.search.generator(torch.device(self.device)) if isinstance(self.search, Sampling) else None
        while some := list(islice(remaining, WAITING)):
            try:
                ids = self.tokenizer.ids(some)
            except NoVector as error:
                raise UnmaskError(f"Source {before + error.place + 1:,}: {error}") from None
            yield from self._answers(some, ids, generator)
            before += len(some)

    def _answers(self, texts: list[str], ids: list[np.ndarray], generator: torch.Generator | None) -> Iterator[Answer]:
        asked = [self.tokenizer.closed(own, self.longest) for own in ids if len(own)]
        found = generate_all(
            self.writer,
            asked,
            self.search,
            end=self.tokenizer.end,
            pad=self.tokenizer.pad,
            tokens=self.tokens,
            device=self.device,
            generator=generator,
        )
        for text, own in zip(texts, ids, strict=True):
            translations = [self._translated(hypothesis) for hypothesis in next(found)] if len(own) else []
            answer = Answer(text, translations, len(own) >= self.longest, self.tokenizer.lacking(own))
            self.cut, self.unknown = self.cut + answer.cut, self.unknown + bool(answer.unknown)
            self.endless += sum(not one.finished for one in translations)
            yield answer

    @property
    def notes(self) -> list[str]:
        """What is to be said of the sources so far that were not read as they stand, and of what did not end."""
        cut = f"Sources with more than {self.longest - 1:,} tokens, whose ends were not read: {self.cut:,}."
        unknown = f"Sources with characters or words that the vocabulary lacks, read as <unk>: {self.unknown:,}."
        endless = f"Texts that did not end within the limit of their length, and were cut there: {self.endless:,}."
        said = ((self.cut, cut), (self.unknown, unknown), (self.endless, endless))
        return [note for count, note in said if count]

    def _translated(self, hypothesis: Hypothesis) -> Translated:
        probabilities = torch.tensor(hypothesis.token_log_probabilities).exp().tolist()
        return Translated(
            self.tokenizer.target.decode(hypothesis.tokens),
            hypothesis.score,
            hypothesis.log_probability,
            self.tokenizer.target.pieces(hypothesis.tokens),
            probabilities,
            hypothesis.finished,
        )

    def alignment(self, source: str, translation: str) -> Alignment:
        """Where the model looked while it wrote: [tokens of the translation and the end, tokens of the source and the
        end], each row a distribution; of texts that are longer than what the model reads, their beginnings. Raises
        UnmaskError for a model without attention."""
        tokenizer, target = self.tokenizer, self.tokenizer.target
        read, written = (one[: self.longest - 1] for one in (tokenizer.ids([source])[0], target.ids([translation])[0]))
        batch = collate_pairs([read], [written], tokenizer.pad, tokenizer.start, tokenizer.end)
        with torch.inference_mode():  # in a twin, for others may write with the model, or look into it, meanwhile
            weights_TS = twin(self.model).alignment(batch.to(self.device))[0]
        names = [[*map(_shown, pieces), "</s>"] for pieces in (tokenizer.pieces(read), target.pieces(written))]
        return Alignment(names[0], names[1], weights_TS.float().cpu().tolist())


def _shown(piece: str) -> str:
    """A token as it is shown: spaces are seen."""
    return piece.replace("▁", "·").replace(" ", "·")


def searching(settings: Any) -> Search:
    """The search that a folder names among its settings; greedy where it names none."""
    named = settings.get("search") if hasattr(settings, "get") else None
    if named:
        return Search.from_dict(named)
    return Search(limits=Limits(max_length=LONGEST))

"""Translator: translates texts, in order, with an encoder–decoder from a folder."""

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

LONGEST = 512  # most tokens of a source
WAITING = 1_024  # texts that are read ahead, so that texts of similar length share a batch


@dataclass(frozen=True)
class Translated:
    """A translation of a text.

    text             the text, without special tokens
    score            the score of the search, see `Search`; for a sample, its log-probability
    log_probability  natural logarithm of the model's probability of its tokens
    pieces           its tokens
    probabilities    of each token, and of the end token if the model wrote it
    finished         whether the model ended it; False: it was cut at the limit of the length
    """

    text: str
    score: float
    log_probability: float
    pieces: list[str]
    probabilities: list[float]
    finished: bool


@dataclass(frozen=True)
class Answer:
    """The translations of a source, best first; samples in the order of the draws. An empty text has none.

    cut      whether the end of the source was not read
    unknown  number of its tokens that the vocabulary lacks
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
    """Translates texts with the model of a folder that `unmask train` wrote, or of a Marian folder.

    search     search or sampling; None: the search that the folder names, else greedy
    tokens     most tokens of a batch, padding included
    precision  "bf16": a Transformer multiplies in bfloat16, several times as fast as in float32 on processors that
               support it; sums, norms and probabilities stay float32. "auto": bf16 on devices that are known to support
               it

    `settled` is the number format in use. Raises UnmaskError for a folder without an encoder–decoder or a tokenizer.
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
        self.cut = self.unknown = 0  # number of sources that were cut; that had unknown tokens
        self.endless = 0  # number of written texts that were cut at the limit of their length

    def __repr__(self) -> str:
        size = f"{type(self.model.config).__name__}, {self.model.parameters_total:,} parameters"
        return f"<Translator of {self.folder}: {size}>"

    def __call__(self, texts: str | Iterable[str]) -> list[str]:
        """The best translation of each text, in order."""
        texts = [texts] if isinstance(texts, str) else texts
        return [answer.text for answer in self.stream(texts)]

    def stream(self, texts: Iterable[str]) -> Iterator[Answer]:
        """Yield an answer for each text, in order; a text without tokens has no translations. For a model that reads
        vectors, raises UnmaskError for a source that is not one."""
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
            cut = len(self.tokenizer.shortened(own, self.longest - 1)) < len(own)
            answer = Answer(text, translations, cut, self.tokenizer.lacking(own))
            self.cut, self.unknown = self.cut + answer.cut, self.unknown + bool(answer.unknown)
            self.endless += sum(not one.finished for one in translations)
            yield answer

    @property
    def notes(self) -> list[str]:
        """Warnings about sources that were cut or had unknown tokens, and about texts that did not end."""
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
        """Attention weights [tokens of the translation and the end token, tokens of the source and the end token], for
        a picture [tokens, places]; each row is a distribution. Texts that are too long for the model are cut. Raises
        UnmaskError for a model without attention."""
        tokenizer, target = self.tokenizer, self.tokenizer.target
        read = tokenizer.shortened(tokenizer.ids([source])[0], self.longest - 1)
        written = target.ids([translation])[0][: self.longest - 1]
        batch = collate_pairs([read], [written], tokenizer.pad, tokenizer.start, tokenizer.end)
        with torch.inference_mode():  # a copy, because other threads may use the model at the same time
            weights_TS = twin(self.model).alignment(batch.to(self.device))[0]
        names = [[*map(_shown, places)] for places in (tokenizer.places(read), target.places(written))]
        return Alignment(names[0], names[1], weights_TS.float().cpu().tolist())


def _shown(piece: str) -> str:
    """A token with its spaces as dots."""
    return piece.replace("▁", "·").replace(" ", "·")


def searching(settings: Any) -> Search:
    """The search in the settings of a folder; greedy if they have none."""
    named = settings.get("search") if hasattr(settings, "get") else None
    if named:
        return Search.from_dict(named)
    return Search(limits=Limits(max_length=LONGEST))

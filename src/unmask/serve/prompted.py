"""Prompted: writes a text for each source with a language model, which continues a prompt of examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from unmask import huggingface
from unmask.data.bitext.pairs import Bitext
from unmask.errors import UnmaskError, plural
from unmask.generate import Search
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.serve.continuation import Continuer, language_model, searching
from unmask.serve.translator import Answer, Translated

ARROW, END = " =>", "\n"


class Prompted:
    """Answers sources like a `Translator`, by a language model that is not trained on pairs (Brown et al. 2020,
    "Language Models are Few-Shot Learners"). A prompt has a line `source => target` for each example, then the source;
    what the model writes to the end of the line is the answer.

    model   folder of a language model
    known   pairs for the examples; the seed draws other ones for each source
    shots   examples of a prompt; fewer if they leave the model no room for the answer
    search  search, with the most tokens of an answer

    Raises UnmaskError for a model that does not predict the next token, and for more examples than pairs.
    """

    def __init__(
        self, model: Path | str | Loaded[Model], known: Bitext, shots: int, search: Search | None = None, seed: int = 0
    ) -> None:
        if not 0 <= shots <= len(known):
            raise UnmaskError(f"There are {plural(len(known), 'pair')} for {shots} examples: change --shots.")
        self.loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        language_model(self.loaded)
        self.tokenizer = self.loaded.require_tokenizer(str(model))
        self.folder = model if isinstance(model, Path | str) else ""
        self.known, self.shots, self.seed = known, shots, seed
        self.search = search or searching()
        self.cut = self.unknown = self.endless = 0  # prompts with fewer examples; answers that did not end

    def stream(self, sources: Iterable[str]) -> Iterator[Answer]:
        """Yield an answer for each source, in order. Raises UnmaskError for a source that is too long for the model."""
        texts = list(sources)
        prompts = [self.prompt(number, text) for number, text in enumerate(texts)]
        found = Continuer(self.loaded, self.search).stream(prompts, "Source {}".format)
        for text, prompt, (best, *_) in zip(texts, prompts, found, strict=True):
            said, ended, _ = best.text[len(prompt) :].partition(END)
            self.unknown += bool(best.unknown)
            self.endless += not (ended or best.finished)
            p = best.log_probability
            yield Answer(text, [Translated(said.strip(), p, p, [], [], bool(ended) or best.finished)])

    def prompt(self, number: int, source: str) -> str:
        """The prompt of a source; with as many examples as the model has room for."""
        drawn = np.random.default_rng([self.seed, number]).choice(len(self.known), self.shots, replace=False)
        lines = [f"{self.known.sources[i]}{ARROW} {self.known.targets[i]}{END}" for i in drawn]
        room = (self.loaded.model.positions or np.inf) - self.search.limits.max_length
        sizes = [len(ids) for ids in self.tokenizer.ids([*lines, f"{source}{ARROW}"])]
        kept = self.shots
        while kept and sum(sizes[:kept]) + sizes[-1] >= room:
            kept -= 1
        self.cut += kept < self.shots
        return "".join([*lines[:kept], f"{source}{ARROW}"])

    @property
    def notes(self) -> list[str]:
        """The form of the prompts, and how many of them and of the answers were cut."""
        form = f"Prompts: {plural(self.shots, 'example')} and the source, a line each, with the answer after{ARROW}."
        fewer = f"Prompts with fewer examples, for which the model has no room: {self.cut:,}."
        endless = f"Answers that did not end within the limit of their length: {self.endless:,}."
        return [form, *([fewer] if self.cut else []), *([endless] if self.endless else [])]

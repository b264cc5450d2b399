"""Generator: writes what follows a text with a language model, as text in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.generate import Sampling, Search
from unmask.huggingface import Loaded
from unmask.huggingface.hub import model_folder
from unmask.kernels.devices import placed
from unmask.models.model import Model
from unmask.serve.continuation import Continuation, Continuer, sampling, searching


class Generator:
    """Continues texts: the texts that a language model writes after them.

    >>> write = Generator("runs/lm", max_length=40, temperature=0.8)     # doctest: +SKIP
    >>> write("Once upon a time")                                        # doctest: +SKIP
    'Once upon a time there was a small house ...'

    model   folder, or name on the Hub, of a language model
    search  the most probable text (greedy, or `beam_size`) in place of a sample
    device  where the model runs
    fields  of sampling (`temperature`, `top_k`, `top_p`, `samples`, `seed`, ...) or of the search, as `unmask generate
            --fields` lists them; `max_length` is the most tokens to write

    Raises UnmaskError for a model that does not predict the next token, and for an unknown field.
    """

    def __init__(
        self, model: Path | str | Loaded[Model], *, search: bool = False, device: str = "cpu", **fields: Any
    ) -> None:
        self.name = "a model" if isinstance(model, Loaded) else str(model)
        loaded = huggingface.opened(
            model if isinstance(model, Loaded) else model_folder(model), huggingface.SINGLE_STACK
        )
        placed(loaded.model, device)
        how: Sampling | Search = searching() if search else sampling()
        self.how = how.override(fields)
        self.continuer = Continuer(loaded, self.how)

    def __call__(self, beginnings: str | Iterable[str] = "") -> Any:
        """The first text for one beginning, as a string; for several, a list of them."""
        if isinstance(beginnings, str):
            return self.continuer([beginnings])[0][0].text
        return [found[0].text for found in self.continuer(list(beginnings))]

    def stream(self, beginnings: str | Iterable[str]) -> Iterator[list[Continuation]]:
        """For each beginning, or the only one, all its samples or hypotheses with their probabilities."""
        return self.continuer.stream([beginnings] if isinstance(beginnings, str) else list(beginnings))

    def __repr__(self) -> str:
        kind = "search" if isinstance(self.how, Search) else "sampling"
        return f"<Generator of {self.name}: {kind}, at most {self.how.limits.max_length} tokens>"

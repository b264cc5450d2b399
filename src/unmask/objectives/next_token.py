"""NextToken: predict the next token, for causal language models and for encoder–decoders; ScheduledSampling.

Shapes: B rows, T tokens written, M targets, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.nn import Logits
from unmask.objectives.cross_entropy import cross_entropy
from unmask.objectives.objective import Objective, Term, perplexity
from unmask.types import Batch, Head, Loss


class NextToken(Objective):
    """Teacher forcing: every token is predicted from the true tokens before it (and from the source, if there is one).

    label_smoothing  share of the target probability that is spread evenly over all tokens (Vaswani et al. 2017, section
                     5.4). The loss is then larger than the negative log-likelihood, which is the metric `nll`; the
                     perplexity is exp(nll)
    """

    name = "next"
    head = "next"
    terms = (Term(name, "next token", "next-token"),)
    head_labels = ((head, "next-token"),)
    teachable = head

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        if not 0 <= label_smoothing < 1:
            raise UnmaskError(f"The label smoothing must be from 0 to below 1, not {label_smoothing}.")
        self.heads = {self.name: Head("next_token")}
        self.label_smoothing = label_smoothing

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        return {self.name: self.score(model, model(batch), batch)}

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        return self.of_answers(model.logits(self.head, hidden_BTD, target.places, batch), target.values)

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        total, nll, correct = cross_entropy(logits, values_M, self.label_smoothing)
        return Loss(total, values_M.numel(), {"nll": nll, "correct": correct})

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        """The perplexity, and the bits per character, which can be compared between models with different tokens; both
        from the mean negative log-likelihood in nats per token."""
        nll = found.get(f"{self.name}/nll")
        if nll is None:
            return {}
        per_token = characters()
        bits = {f"{self.name}/bits_per_character": nll / math.log(2) / per_token} if per_token else {}
        return {f"{self.name}/perplexity": perplexity(nll), **bits}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if "next/perplexity" not in found or "loss/next" not in baseline:
            return []
        start = f"at the start: {before['next/perplexity']:.1f}; " if "next/perplexity" in before else ""
        bits = found.get("next/bits_per_character")
        return [
            f"Held-out text: accuracy {found['next/correct']:.1%}, perplexity "
            f"{found['next/perplexity']:.1f} ({start}word frequencies alone: {math.exp(baseline['loss/next']):.1f})"
            + (f", {bits:.2f} bits per character." if bits is not None else ".")
        ]


class ScheduledSampling(NextToken):
    """Some of the true tokens are replaced by the model's own predictions (Bengio et al. 2015).

    The predictions come from a first pass with the true tokens, so all places are computed at once (Mihaylova and
    Martins 2019, section 3); in the second pass the model learns to continue from them. Evaluation replaces no tokens.

    share  of the tokens that are replaced in training
    """

    def __init__(self, share: float, *, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing=label_smoothing)
        if not 0 <= share <= 1:
            raise UnmaskError(f"The share of tokens that are replaced by predictions must be from 0 to 1, not {share}.")
        self.share = share

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        seen = self._with_predictions(model, batch) if model.training else batch
        return {self.name: self.score(model, model(seen), batch)}

    def _with_predictions(self, model: Model, batch: Batch) -> Batch:
        """The batch with some tokens replaced by predictions: that at one place becomes the token at the next."""
        places = batch.targets[self.name].places
        with torch.no_grad():
            predicted = model.answer(self.name, model(batch), places).argmax(-1)
        follows = places[1:] == places[:-1] + 1  # not the first token of another row
        if batch.documents is not None:
            documents = batch.documents.flatten()
            follows &= documents[places[1:]] == documents[places[:-1]]
        follows &= places[1:] % batch.tokens.shape[1] != 0
        drawn = F.dropout(torch.ones(follows.shape, device=follows.device), 1 - self.share) > 0
        chosen = follows & drawn  # drawn by dropout, so that a resumed run draws the same
        tokens = batch.tokens.flatten().clone()
        tokens[places[1:][chosen]] = predicted[:-1][chosen]
        return replace(batch, tokens=tokens.view_as(batch.tokens))

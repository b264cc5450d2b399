"""Heads: vectors to answers. Language model (tied), tied output, pooler, classifier, span, projection, scalar mix.

Shapes: M places (gathered by the caller), D width, V vocabulary, E width of the stored token vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.linear import Logits, hooked, is_plain
from unmask.nn.dropout import Dropout


class VocabularyHead(nn.Module):
    """A head that answers for every token of a vocabulary, by one product at its end."""

    def logits(self, x_MD: Tensor) -> Logits:
        """What `forward` multiplies."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its logits are a product of")

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        """Give what it has of its own for each token rows for new tokens, by `larger`; its table has them already."""

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., V]."""
        return self.logits(x_MD).made()


def logits_of(head: nn.Module, x_MD: Tensor) -> Tensor | Logits:
    """What a head answers, its last product left to the caller where that is one over a vocabulary."""
    if not hooked(head):
        if isinstance(head, VocabularyHead):
            return head.logits(x_MD)
        if is_plain(head):
            return Logits(x_MD, head.weight, head.bias)
        if type(head) is nn.Sequential:
            return logits_of(head[-1], head[:-1](x_MD))
    answers: Tensor = head(x_MD)
    return answers


class LanguageModelHead(VocabularyHead):
    """norm(activation(dense(x))) against every token vector, plus a bias for each token (BERT's masked-LM head).

    The token vectors are borrowed: they are the parameters of `token`, not of the head, so they are stored once
    and move with the model that owns them.
    """

    def __init__(
        self,
        token: nn.Embedding,
        dim: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        eps: float = 1e-12,
    ):
        super().__init__()
        self.dense = nn.Linear(dim, token.embedding_dim)
        self.norm = nn.LayerNorm(token.embedding_dim, eps)
        self.bias = nn.Parameter(torch.zeros(token.num_embeddings))
        self.activation = activation
        # Inside a tuple the module is not registered here a second time, yet it is looked up at every call, so the
        # tie outlives copies, moves to a device, and parameters that are replaced.
        self._borrowed = (token,)

    @property
    def token(self) -> nn.Embedding:
        """Whose vectors the output is tied to."""
        return self._borrowed[0]

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.bias = larger(self.bias)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(self.norm(self.activation(self.dense(x_MD))), self.token.weight, self.bias)


class WideHead(LanguageModelHead):
    """norm(activation(dense(x))) against every token vector, with the D - E numbers that it is too narrow by beside it.

    rest  [V, D - E], which belong to the output alone
    """

    def __init__(self, token: nn.Embedding, dim: int, *, activation: Callable[[Tensor], Tensor], eps: float):
        super().__init__(token, dim, activation=activation, eps=eps)
        self.dense, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim, eps)
        self.rest = nn.Embedding(token.num_embeddings, dim - token.embedding_dim)

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        super().extend(larger)
        self.rest.weight = larger(self.rest.weight)
        self.rest.num_embeddings = self.rest.weight.shape[0]

    def logits(self, x_MD: Tensor) -> Logits:
        weight_VD = torch.cat([self.token.weight, self.rest.weight], -1)
        return Logits(self.norm(self.activation(self.dense(x_MD))), weight_VD, self.bias)


class TiedHead(VocabularyHead):
    """x against every token vector (Press and Wolf 2017; Vaswani et al. 2017, section 3.4): an output without weights.

    The token vectors are borrowed, as those of `LanguageModelHead` are.

    bias  whether each token has one
    """

    def __init__(self, token: nn.Embedding, *, bias: bool = False):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(token.num_embeddings)) if bias else None
        self._borrowed = (token,)

    @property
    def token(self) -> nn.Embedding:
        """Whose vectors the output is tied to."""
        return self._borrowed[0]

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.bias = None if self.bias is None else larger(self.bias)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(x_MD, self.token.weight, self.bias)


class ScaledTiedHead(TiedHead):
    """x D^-0.5 against every token vector: vectors of variance 1 would make logits of variance D (T5)."""

    def logits(self, x_MD: Tensor) -> Logits:
        return super().logits(x_MD * x_MD.shape[-1] ** -0.5)


class ProjectedHead(VocabularyHead):
    """E (W h) + b: the state, brought to the width of a token vector, against all of them (Press & Wolf 2017)."""

    def __init__(self, token: nn.Embedding, width: int):
        super().__init__()
        self.project = nn.Linear(width, token.embedding_dim, bias=False)
        self.tied = TiedHead(token, bias=True)

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.tied.extend(larger)

    def logits(self, x_ME: Tensor) -> Logits:
        return self.tied.logits(self.project(x_ME))


class UntiedHead(VocabularyHead):
    """output(x): an answer for each of some words, with vectors of its own."""

    def __init__(self, dim: int, outputs: int):
        super().__init__()
        self.output = nn.Linear(dim, outputs)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(x_MD, self.output.weight, self.output.bias)


class Pooler(nn.Module):
    """tanh(dense(dropout(x))) of the first token of a sequence (BERT's sentence vector, without dropout)."""

    def __init__(self, dim: int, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(dim, dim)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[M, D] -> [M, D]."""
        return self.dense(self.dropout(x_MD)).tanh()


class Classifier(nn.Module):
    """output(dropout(x)): sequences where x is pooled, words where it is not; one output is regression."""

    def __init__(self, dim: int, outputs: int, dropout: float = 0.0, *, bias: bool = True):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(dim, outputs, bias)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., outputs]."""
        return self.output(self.dropout(x_MD))

    @torch.no_grad()
    def on_a_trunk(self) -> None:
        """Scale new weights to a deviation of 1 / sqrt(D) (LeCun et al. 1998, section 4.6): answers vary as much as
        what is read. On a trunk that has learned, the 0.02 of pre-training is so small a start that a short run spends
        itself on making the answers grow (docs/decisions/0017-new-heads-are-wide.md)."""
        weight_CD = self.output.weight
        weight_CD.mul_(weight_CD.shape[-1] ** -0.5 / weight_CD.square().mean().sqrt())


class Span(Classifier):
    """How well each token begins, and ends, the answer (BERT, section 4.2)."""

    def __init__(self, dim: int, dropout: float = 0.0):
        super().__init__(dim, 2, dropout)


class Projection(nn.Module):
    """output(activation(dense(x))): into the space where vectors are compared (SimCLR, section 2.1)."""

    def __init__(self, dim: int, hidden: int, outputs: int, activation: Callable[[Tensor], Tensor] = F.relu):
        super().__init__()
        self.dense = nn.Linear(dim, hidden)
        self.output = nn.Linear(hidden, outputs)
        self.activation = activation

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> [..., outputs]."""
        return self.output(self.activation(self.dense(x_MD)))


class ScalarMix(nn.Module):
    """scale * sum of softmax(weight)[i] * layers[i], learned for each task (ELMo, Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """One [..., D] a layer -> [..., D]."""
        parts = zip(self.weight.softmax(0), layers, strict=True)
        return self.scale * torch.stack([share * layer for share, layer in parts]).sum(0)

"""Heads, from vectors to outputs: language model, tied output, pooler, classifier, span, projection, scalar mix.

Shapes: M places (gathered by the caller), D width, V vocabulary, E width of the stored token vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.linear import Logits, hooked, is_plain
from unmask.nn.dropout import Dropout


class VocabularyHead(nn.Module):
    """A head with one output for each token of a vocabulary, whose last operation is a matrix product."""

    def logits(self, x_MD: Tensor) -> Logits:
        """The factors of the last product, which `forward` computes."""
        raise NotImplementedError(f"{type(self).__name__} does not implement logits()")

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        """Add rows for new tokens to the head's own parameters with `larger`; the token vectors have theirs already."""

    @property
    def output_bias(self) -> nn.Parameter | None:
        """The bias [V] of the logits; None: there is none."""
        bias = getattr(self, "bias", None)
        return bias if isinstance(bias, nn.Parameter) else None

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., V]."""
        return self.logits(x_MD).made()


def logits_of(head: nn.Module, x_MD: Tensor) -> Tensor | Logits:
    """The outputs of a head; if its last operation is a plain product, the factors, which the caller multiplies."""
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
    """norm(activation(dense(x))) times every token vector, plus a bias for each token (BERT's masked-LM head).

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
        # In a tuple, the module is not registered here a second time. It is looked up at every call, so the tie
        # survives copies, moves to a device, and replaced parameters.
        self._borrowed = (token,)

    @property
    def token(self) -> nn.Embedding:
        """The embedding to which the output is tied."""
        return self._borrowed[0]

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.bias = larger(self.bias)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(self.norm(self.activation(self.dense(x_MD))), self.token.weight, self.bias)


class WideHead(LanguageModelHead):
    """norm(activation(dense(x))) times every token vector [E], which is widened to D by output weights.

    rest  [V, D - E], the additional weights, which the input does not use
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
    """x times every token vector (Press and Wolf 2017; Vaswani et al. 2017, section 3.4): an output without weights.

    The token vectors are borrowed, as those of `LanguageModelHead` are.

    bias  whether each token has a bias
    """

    def __init__(self, token: nn.Embedding, *, bias: bool = False):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(token.num_embeddings)) if bias else None
        self._borrowed = (token,)

    @property
    def token(self) -> nn.Embedding:
        """The embedding to which the output is tied."""
        return self._borrowed[0]

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.bias = None if self.bias is None else larger(self.bias)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(x_MD, self.token.weight, self.bias)


class ScaledTiedHead(TiedHead):
    """x D^-0.5 times every token vector: vectors of variance 1 would give logits of variance D (T5)."""

    def logits(self, x_MD: Tensor) -> Logits:
        return super().logits(x_MD * x_MD.shape[-1] ** -0.5)


class ProjectedHead(VocabularyHead):
    """E (W h) + b: the state, projected to the width of the token vectors, times each of them (Press & Wolf 2017)."""

    def __init__(self, token: nn.Embedding, width: int):
        super().__init__()
        self.project = nn.Linear(width, token.embedding_dim, bias=False)
        self.tied = TiedHead(token, bias=True)

    @property
    def output_bias(self) -> nn.Parameter | None:
        return self.tied.output_bias

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.tied.extend(larger)

    def logits(self, x_ME: Tensor) -> Logits:
        return self.tied.logits(self.project(x_ME))


class Transform(nn.Module):
    """norm(activation(dense(x))): the layer before an output.

    bias   whether the linear map has a bias
    """

    def __init__(self, dim: int, activation: Callable[[Tensor], Tensor], norm: nn.Module, *, bias: bool = True):
        super().__init__()
        self.dense, self.norm, self.activation = nn.Linear(dim, dim, bias), norm, activation

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return self.norm(self.activation(self.dense(x_MD)))


class TransformedHead(VocabularyHead):
    """output(transform(x)): an output for each token, tied or with its own weights, after another layer."""

    def __init__(self, transform: nn.Module, output: VocabularyHead):
        super().__init__()
        self.transform, self.output = transform, output

    @property
    def output_bias(self) -> nn.Parameter | None:
        return self.output.output_bias

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        self.output.extend(larger)

    def logits(self, x_MD: Tensor) -> Logits:
        return self.output.logits(self.transform(x_MD))


class UntiedHead(VocabularyHead):
    """output(x): one output for each word of a vocabulary, with its own weights."""

    def __init__(self, dim: int, outputs: int, *, bias: bool = True):
        super().__init__()
        self.output = nn.Linear(dim, outputs, bias)

    @property
    def output_bias(self) -> nn.Parameter | None:
        bias: nn.Parameter | None = self.output.bias
        return bias

    def extend(self, larger: Callable[[Tensor], nn.Parameter]) -> None:
        for name, parameter in list(self.output.named_parameters()):
            setattr(self.output, name, larger(parameter))
        self.output.out_features = len(self.output.weight)

    def logits(self, x_MD: Tensor) -> Logits:
        return Logits(x_MD, self.output.weight, self.output.bias)


class Pooler(nn.Module):
    """tanh(dense(dropout(x))) of the first token of a sequence (the sentence vector of BERT, which has no dropout)."""

    def __init__(self, dim: int, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(dim, dim)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[M, D] -> [M, D]."""
        return self.dense(self.dropout(x_MD)).tanh()


@runtime_checkable
class StartsWide(Protocol):
    """A head whose new weights are wider than those of pre-training."""

    def on_a_trunk(self) -> None: ...


class Classifier(nn.Module):
    """output(dropout(x)), of sequences if x is pooled, else of tokens; a single output is a regression."""

    def __init__(self, dim: int, outputs: int, dropout: float = 0.0, *, bias: bool = True):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(dim, outputs, bias)

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., outputs]."""
        return self.output(self.dropout(x_MD))

    @torch.no_grad()
    def on_a_trunk(self) -> None:
        """Scale new weights to a standard deviation of 1 / sqrt(D), so that the outputs have the variance of the inputs
        (LeCun et al. 1998, section 4.6). With the 0.02 of pre-training, a short run on a trained trunk would spend most
        of its steps on making the outputs larger (docs/decisions/0017-new-heads-are-wide.md)."""
        weight_CD = self.output.weight
        weight_CD.mul_(weight_CD.shape[-1] ** -0.5 / weight_CD.square().mean().sqrt())


class TransformedClassifier(Classifier):
    """output(dropout(transform(x))): a classifier after another layer, such as a `Transform`."""

    def __init__(self, transform: nn.Module, dim: int, outputs: int, dropout: float = 0.0):
        super().__init__(dim, outputs, dropout)
        self.transform = transform

    def forward(self, x_MD: Tensor) -> Tensor:
        """[..., D] -> logits [..., outputs]."""
        return super().forward(self.transform(x_MD))


class Span(Classifier):
    """The scores of each token as the start and as the end of the answer (BERT, section 4.2)."""

    def __init__(self, dim: int, dropout: float = 0.0):
        super().__init__(dim, 2, dropout)


class Projection(nn.Module):
    """output(activation(dense(x))): a projection to the space in which vectors are compared (SimCLR, section 2.1)."""

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
        """One [..., D] for each layer -> [..., D]."""
        parts = zip(self.weight.softmax(0), layers, strict=True)
        return self.scale * torch.stack([share * layer for share, layer in parts]).sum(0)

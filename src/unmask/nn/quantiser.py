"""Product quantisation with Gumbel noise, and the head that compares hidden states with quantised frames (wav2vec 2.0).

Shapes: M frames, C width of a frame, D of a hidden state, G codebooks, V entries of each, W width of a quantised frame,
P of the vectors that are compared.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly


class Quantised(NamedTuple):
    """Quantised frames.

    vectors     [M, W], or [M, P] where a head has projected them
    codes       [M, G] int64: the entry of each codebook
    perplexity  [G]: exp of the entropy of the mean distribution over the entries of each codebook, from 1 to V: of the
                softmax in training, of the chosen entries in evaluation
    entries     V
    """

    vectors: Tensor
    codes: Tensor
    perplexity: Tensor
    entries: int

    @property
    def used(self) -> Tensor:
        """The share of the entries of all codebooks that occur among the codes."""
        occurs_GV = self.perplexity.new_zeros(len(self.perplexity), self.entries)
        return occurs_GV.scatter(1, self.codes.mT, 1.0).mean()


class ProductQuantiser(nn.Module):
    """Replaces a frame by the concatenation of an entry of each of G codebooks (Baevski et al. 2020, section 2).

    In training, an entry is drawn from the softmax of its logits, by Gumbel noise from torch's stream, as dropout is,
    and the gradient is that of the relaxed distribution (Jang et al. 2017; equation 1). In evaluation, it is the entry
    with the largest logit.

    width    C        groups  G        entries  V        codes  W, divided evenly between the codebooks

    Raises UnmaskError for a width that the codebooks do not divide.
    """

    def __init__(self, width: int, groups: int, entries: int, codes: int) -> None:
        super().__init__()
        if codes % groups:
            raise UnmaskError(f"{groups} codebooks cannot divide quantised frames of width {codes} evenly.")
        self.groups, self.entries = groups, entries
        self.weight_proj = nn.Linear(width, groups * entries)
        self.codevectors = nn.Parameter(torch.empty(1, groups * entries, codes // groups))

    def initialise(self, generator: torch.Generator) -> None:
        """Logits of deviation about sqrt(C), so that few entries share a frame; entries uniform in [0, 1), as the
        authors do."""
        nn.init.normal_(self.weight_proj.weight, std=1.0, generator=generator)
        nn.init.zeros_(self.weight_proj.bias)
        nn.init.uniform_(self.codevectors, generator=generator)

    def forward(self, frames_MC: Tensor, temperature: float = 1.0) -> Quantised:
        """Quantise frames; the temperature divides the noisy logits in training."""
        logits_MGV = self.weight_proj(frames_MC).unflatten(-1, (self.groups, self.entries)).float()
        with exactly(frames_MC):
            if self.training:
                chosen_MGV = F.gumbel_softmax(logits_MGV, tau=temperature, hard=True)
                shares_MGV = logits_MGV.softmax(-1)
            else:
                chosen_MGV = shares_MGV = F.one_hot(logits_MGV.argmax(-1), self.entries).float()
            vectors_GVW = self.codevectors.float().view(self.groups, self.entries, -1)
            vectors_MW = torch.einsum("mgv,gvw->mgw", chosen_MGV, vectors_GVW).flatten(1)
        return Quantised(vectors_MW, chosen_MGV.argmax(-1), perplexity(shares_MGV), self.entries)


def perplexity(shares_MGV: Tensor) -> Tensor:
    """[G]: exp of the entropy of the mean of the distributions; 1 without any."""
    mean_GV = shares_MGV.sum(0) / max(len(shares_MGV), 1)
    return torch.exp(-torch.xlogy(mean_GV, mean_GV).sum(-1))


class QuantisedHead(nn.Module):
    """Projects hidden states (`forward`) and quantised frames (`quantise`) to vectors of width P, which an objective
    compares.

    quantiser  of the frames          dim  D          outputs  P          dropout  of the frames before quantisation
    """

    def __init__(self, quantiser: ProductQuantiser, dim: int, outputs: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        codes = quantiser.groups * quantiser.codevectors.shape[-1]
        self.quantizer, self.dropout = quantiser, nn.Dropout(dropout)
        self.project_hid, self.project_q = nn.Linear(dim, outputs), nn.Linear(codes, outputs)

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """[M, D] -> [M, P]."""
        projected: Tensor = self.project_hid(hidden_MD)
        return projected

    def quantise(self, frames_MC: Tensor, temperature: float = 1.0) -> Quantised:
        """[M, C] -> quantised and projected to [M, P]."""
        found: Quantised = self.quantizer(self.dropout(frames_MC), temperature)
        return found._replace(vectors=self.project_q(found.vectors))

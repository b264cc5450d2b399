"""ClusterHead: which cluster a frame belongs to, by the cosine of its state and a vector for each cluster (HuBERT).

Shapes: M frames, D width of a hidden state, K clusters, W width of the vectors that are compared.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.formats import exactly


class ClusterHead(nn.Module):
    """p(k) ∝ exp(cos(A h, e_k) / τ) (Hsu et al. 2021, equation 3).

    dim, clusters, width  D, K, W          temperature  τ
    """

    def __init__(self, dim: int, clusters: int, *, width: int = 256, temperature: float = 0.1) -> None:
        super().__init__()
        self.project, self.temperature = nn.Linear(dim, width), temperature
        self.vectors = nn.Parameter(torch.empty(clusters, width))

    def initialise(self, generator: torch.Generator) -> None:
        """Vectors uniform in [0, 1), as the authors do; the projection is left to the page."""
        nn.init.uniform_(self.vectors, generator=generator)

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """[M, D] -> logits [M, K] in float32."""
        projected_MW = self.project(hidden_MD).float()
        with exactly(hidden_MD):
            cosines_MK = F.normalize(projected_MW, dim=-1) @ F.normalize(self.vectors.float(), dim=-1).T
        return cosines_MK / self.temperature

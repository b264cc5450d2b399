"""DeiT: a ViT with a token that learns the prediction of a teacher (Touvron et al. 2021).

Shapes: M pictures, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unmask.models.model import Model
from unmask.models.stack_model import StackModel
from unmask.models.vit import Vit
from unmask.nn import Classifier
from unmask.types import Batch, Head, Kind


@dataclass(frozen=True, kw_only=True)
class Deit(Vit):
    """DeiT (Touvron et al. 2021, section 4): a second summary token, the distillation token, learns the teacher's
    prediction. The logits are the mean of those of both tokens."""

    summaries: ClassVar[tuple[Kind, ...]] = (Kind.CLS, Kind.DISTILL)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return TwoHeads(Classifier(self.dim, head.outputs), Classifier(self.dim, head.outputs))

    def assemble(self, pooler: nn.Module | None, heads: Mapping[str, nn.Module]) -> Model:
        return DeitModel(self, self.embedding(), self.stack(), pooler=pooler, heads=heads)


class TwoHeads(nn.Module):
    """The mean of the logits of the class token and of the distillation token (section 4)."""

    def __init__(self, label: Classifier, teacher: Classifier):
        super().__init__()
        self.label, self.teacher = label, teacher

    def forward(self, both_M2D: Tensor) -> Tensor:
        """[M, 2, D] -> [M, C]."""
        return (self.label(both_M2D[:, 0]) + self.teacher(both_M2D[:, 1])) / 2


class DeitModel(StackModel):
    """A ViT whose summaries are the first two places of a picture."""

    def head_inputs(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """Heads for pictures read the class token and the distillation token after it, [M, 2, D]."""
        if not isinstance(self.heads[name], TwoHeads):
            return super().head_inputs(name, hidden_BTD, places_M, batch)
        rows_ND = hidden_BTD.flatten(0, 1)
        return torch.stack([rows_ND[places_M], rows_ND[places_M + 1]], 1)

    def answers_apart(
        self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """The logits of the class token, and those of the distillation token (section 4)."""
        head = self.heads[name]
        if not isinstance(head, TwoHeads):
            return None
        both_M2D = self.head_inputs(name, hidden_BTD, places_M, batch)
        return head.label(both_M2D[:, 0]), head.teacher(both_M2D[:, 1])

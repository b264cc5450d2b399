"""Pre-training on corpora: config, run, rows and evaluation; continued pre-training; distillation."""

from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.pretraining.run import Pretrain

__all__ = ["Pretrain", "Pretraining", "Rows"]

"""Pre-training on corpora: its config, its run, its rows and its evaluation; continued pre-training; a teacher."""

from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.pretraining.run import Pretrain

__all__ = ["Pretrain", "Pretraining", "Rows"]

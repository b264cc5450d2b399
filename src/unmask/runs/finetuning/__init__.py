"""Fine-tuning on labelled rows: one run with several seeds, cross-validation, a search for settings, a
learning curve."""

from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.runs.finetuning.config import FineTuning, Fit
from unmask.runs.finetuning.cross_validation import cross_validate
from unmask.runs.finetuning.run import RECIPE, Result, begun, finetune, plan
from unmask.runs.finetuning.supervised import Fitted, fit
from unmask.tasks.rows import Rows

__all__ = [
    "RECIPE",
    "FineTuning",
    "Fit",
    "Fitted",
    "Result",
    "Rows",
    "begun",
    "cross_validate",
    "evaluate",
    "finetune",
    "fit",
    "plan",
    "render_evaluation",
]

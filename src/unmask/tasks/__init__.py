"""Tasks: objectives that can also answer: classification, tagging, coreference, question answering, choices,
similarity.

Each task is a class in its own file, with a line below. No other code names it.
"""

from __future__ import annotations

from unmask.tasks.balance import ClassLoss
from unmask.tasks.batching import answered, evaluating
from unmask.tasks.classification import Classification
from unmask.tasks.coreference import Coreference
from unmask.tasks.embedding import Embedding, metric_for
from unmask.tasks.forecasting import Forecasting
from unmask.tasks.image_classification import ImageClassification
from unmask.tasks.multilabel import MultiLabel
from unmask.tasks.multiple_choice import MultipleChoice
from unmask.tasks.picture_embedding import PictureEmbedding
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.registry import TASKS, settings_of, task_fitting, task_found, task_named, task_of, task_on
from unmask.tasks.regression import Regression
from unmask.tasks.roles import Roles
from unmask.tasks.signal_classification import SignalClassification
from unmask.tasks.signal_regression import SignalRegression
from unmask.tasks.signal_tagging import SignalTagging
from unmask.tasks.similarity import loss_for
from unmask.tasks.speech_classification import SpeechClassification
from unmask.tasks.speech_recognition import SpeechRecognition
from unmask.tasks.tagged_words import needs_segments
from unmask.tasks.tagging import Tagging, scheme_of
from unmask.tasks.task import Encoded, Task, doubting
from unmask.tasks.verification import Verification

__all__ = [
    "TASKS",
    "ClassLoss",
    "Classification",
    "Coreference",
    "Embedding",
    "Forecasting",
    "ImageClassification",
    "Encoded",
    "MultiLabel",
    "MultipleChoice",
    "PictureEmbedding",
    "QuestionAnswering",
    "Regression",
    "Roles",
    "SignalClassification",
    "SignalRegression",
    "SignalTagging",
    "SpeechClassification",
    "SpeechRecognition",
    "Tagging",
    "Task",
    "Verification",
    "answered",
    "doubting",
    "evaluating",
    "loss_for",
    "metric_for",
    "needs_segments",
    "scheme_of",
    "settings_of",
    "task_fitting",
    "task_found",
    "task_named",
    "task_of",
    "task_on",
]

for task in (
    Classification,
    MultiLabel,
    Regression,
    Tagging,
    Roles,
    Coreference,
    QuestionAnswering,
    MultipleChoice,
    Embedding,
    ImageClassification,
    PictureEmbedding,
    SpeechClassification,
    SpeechRecognition,
    SignalClassification,
    SignalRegression,
    SignalTagging,
    Forecasting,
    Verification,
):
    TASKS[task.task_name] = task

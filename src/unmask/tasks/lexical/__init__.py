"""Plain references: words counted or weighed, and regressions on them. No pre-training, no order of words."""

from unmask.tasks.lexical.tagging import EDGE, features, tag
from unmask.tasks.lexical.vectors import Vocabulary, one_hot, tf_idf, words

__all__ = ["EDGE", "Vocabulary", "features", "one_hot", "tag", "tf_idf", "words"]

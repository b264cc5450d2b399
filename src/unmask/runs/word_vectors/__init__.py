"""Word vectors: word2vec from text or any sequences, queries, files of other programs, scores."""

from unmask.runs.word_vectors.formats import read, write
from unmask.runs.word_vectors.reading import Reading
from unmask.runs.word_vectors.settings import Word2Vec, Words
from unmask.runs.word_vectors.training import Trained, train
from unmask.runs.word_vectors.vectors import WordVectors
from unmask.runs.word_vectors.walks import random_walks

__all__ = ["Reading", "Trained", "Word2Vec", "WordVectors", "Words", "random_walks", "read", "train", "write"]

"""Runs: pre-training, fine-tuning, translation, word vectors; their searches, evaluations and reports."""

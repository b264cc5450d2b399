"""Runs: pre-training, fine-tuning, translation, word vectors; what is searched, scored and reported of them."""

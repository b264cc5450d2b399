"""Bitext: sentences and their translations, which columns hold them, and batches of them."""

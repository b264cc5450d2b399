"""Labelled rows: texts, pairs, tagged words, questions and choices, from the formats of public data sets."""

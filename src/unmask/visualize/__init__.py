"""Views of a model, its words, its search and its runs, as plain values: pure functions that know no page."""

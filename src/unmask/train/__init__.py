"""The training loop, its checkpoints, its display and its report, for any model, objective and data set."""

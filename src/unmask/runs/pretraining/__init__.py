"""Pre-training on corpora: its config, its run, its rows and its evaluation; continued pre-training; a teacher."""

"""Items in, batches out: what every modality shares, and the readers of each kind of data."""

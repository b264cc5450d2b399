"""From items to batches: code that all modalities share, and the readers of each kind of data."""

"""Text in, batches out: tokenizers, corpora of token shards, streams of packed rows, labelled rows."""

"""Text: documents and sentences, tokenizers, corpora of token shards, and rows made of them."""

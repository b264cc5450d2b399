"""Answers for very many rows: files in parts that can be resumed, and functions for Ray Data and Spark."""

from unmask.serve.many.batches import BatchEmbedder, BatchPredictor

__all__ = ["BatchEmbedder", "BatchPredictor"]

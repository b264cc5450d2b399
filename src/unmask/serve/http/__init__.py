"""The HTTP service: the models of a pool answer JSON requests, and requests of many clients share a batch."""

from unmask.serve.http.pool import Pool, Served
from unmask.serve.http.settings import Settings

__all__ = ["Pool", "Served", "Settings"]

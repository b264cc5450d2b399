"""The HTTP service: models of a pool answer JSON, many clients in one batch."""

from unmask.serve.http.pool import Pool, Served
from unmask.serve.http.settings import Settings

__all__ = ["Pool", "Served", "Settings"]

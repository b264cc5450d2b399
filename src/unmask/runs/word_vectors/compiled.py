"""The loops of word2vec, compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from unmask.errors import needs
from unmask.runs.word_vectors import kernel


@cache
def compiled(network: str) -> Callable[..., int]:
    """`skip_gram` or `cbow` as machine code that releases the GIL; compiled once, and cached on disk.

    Raises UnmaskError if numba is not installed.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        raise needs("Training word vectors needs numba", "words") from None
    for part in kernel.PARTS:
        register_jitable(fastmath=True, error_model="numpy")(part)
    function = kernel.NETWORKS[network]
    try:
        return numba.njit(function, nogil=True, fastmath=True, error_model="numpy", cache=True)
    except RuntimeError:  # there is no writable folder for the cache
        return numba.njit(function, nogil=True, fastmath=True, error_model="numpy")

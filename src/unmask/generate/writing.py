"""generate: the texts that a model generates for each source, by search or by sampling."""

from __future__ import annotations

import torch

from unmask.errors import UnmaskError
from unmask.generate.beam import Search, beam_search
from unmask.generate.sampling import Sampling, sample
from unmask.generate.trace import Hypothesis, Trace
from unmask.models.writer import Writer
from unmask.types import Batch


@torch.inference_mode()
def generate(
    model: Writer,
    sources: Batch,
    search: Search | Sampling,
    *,
    end: int,
    generator: torch.Generator | None = None,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, one list for each row of `sources`: the n best of a `Search`, best first, or the
    samples of a `Sampling` in the order of the draws.

    end        id of the token that ends a text
    generator  the generator of the draws, on the device of the model; None makes one from the seed of the `Sampling`
    trace      an empty `Trace`; every step is recorded in it

    Finished sources leave the batch at once. The search changes the tensor that `decode_step` returns in place. The
    hypotheses of a source do not depend on the other sources of the batch, except for draws and rounding.

    Raises UnmaskError for a model in training mode, an empty batch, ids outside the vocabulary, a `trace` that already
    holds a search, and a source for which the model can generate nothing.
    """
    if model.training:
        raise UnmaskError("The model is in training mode and would generate with dropout; call model.eval() first.")
    if not sources.tokens.numel():
        raise UnmaskError("There are no sources, or none with a token; give at least one row with one token.")
    if isinstance(search, Sampling):
        return sample(model, sources, search, end=end, generator=generator, trace=trace)
    return beam_search(model, sources, search, end=end, trace=trace)

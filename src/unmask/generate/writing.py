"""generate: what a model writes for each source, by search or by sampling."""

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
    samples of a `Sampling` as they were drawn.

    end        id of the token that ends a text
    generator  of the draws, on the device of the model; None starts at the seed of the `Sampling`
    trace      an empty `Trace`, which is filled with every step

    Sources that are done leave the batch at once. The tensor that `decode_step` returns is written into. Answers do not
    depend on the other sources of the batch, except for draws, and for rounding where the model has any.

    Raises UnmaskError for a model in training mode, an empty batch, ids that the model does not have, a `trace` that is
    used already, and a source for which nothing can be written.
    """
    if model.training:
        raise UnmaskError("The model is in training mode and would write with dropout; call model.eval() first.")
    if not sources.tokens.numel():
        raise UnmaskError("There are no sources, or none with a token; give at least one row with one token.")
    if isinstance(search, Sampling):
        return sample(model, sources, search, end=end, generator=generator, trace=trace)
    return beam_search(model, sources, search, end=end, trace=trace)

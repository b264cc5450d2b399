"""The same answers as `transformers`, whose own network does the reading and writing on both sides."""

from __future__ import annotations

import pytest
import torch
from generate_toy import Kept
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from unmask.generate import Blocking, Limits, Search, generate
from unmask.models.writer import Writer
from unmask.types import Batch

END, PAD, VOCABULARY, LONGEST = 0, 59, 60, 14


class Marian(Writer):
    """A Marian network as a Writer that keeps nothing: it decodes the whole prefix for every token."""

    def __init__(self, network: MarianMTModel):
        self.network = network

    def prefill(self, batch: Batch, width: int = 1) -> Kept:
        mask = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        memory = self.network.get_encoder()(batch.tokens, attention_mask=mask).last_hidden_state
        start = torch.empty(len(mask) * width, 0, dtype=torch.long)
        kept = Kept(
            width, len(start), memory=memory.repeat_interleave(width, 0), mask=mask.repeat_interleave(width, 0),
            prefix=start,
        )  # fmt: skip
        kept.first = torch.full((len(start),), PAD)
        return kept

    def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
        state.tensors["prefix"] = torch.cat([state.tensors["prefix"], tokens_N[:, None]], 1)
        return self.network(
            encoder_outputs=(state.tensors["memory"],), attention_mask=state.tensors["mask"],
            decoder_input_ids=state.tensors["prefix"], use_cache=False,
        ).logits[:, -1].clone()  # fmt: skip


@pytest.fixture(scope="module")
def network() -> MarianMTModel:
    torch.manual_seed(3)
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=PAD, forced_eos_token_id=None, max_position_embeddings=32, tie_word_embeddings=False,
    )  # fmt: skip
    network = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() == 2 and "positions" not in name:
                weight.normal_(0, 0.5)
        network.final_logits_bias[0, END] = 2.0  # so that some texts end, early and late
    return network


BLOCKED = {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2}


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (Search(), {"num_beams": 1}),
        (Search(blocking=Blocking(repetition_penalty=1.4, no_repeat_ngram=2)), {"num_beams": 1, **BLOCKED}),
        *[
            (
                Search(beam_size=4, n_best=3, length_penalty=alpha, stop=stop),
                {"num_beams": 4, "num_return_sequences": 3, "length_penalty": alpha, "early_stopping": early},
            )
            for stop, early in [("estimate", False), ("full", True), ("certain", "never")]
            for alpha in (0.0, 1.0, 0.4)
        ],
        (
            Search(beam_size=4, n_best=2, blocking=Blocking(repetition_penalty=1.4, no_repeat_ngram=2)),
            {"num_beams": 4, "num_return_sequences": 2, **BLOCKED},
        ),
        (Search(beam_size=5, limits=Limits(min_length=6)), {"num_beams": 5, "min_new_tokens": 6}),
    ],
)
def test_answers_are_those_of_transformers(network, search, options):
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, VOCABULARY - 1, (24, 7), generator=draw)
    lengths = torch.arange(24) % 6 + 2
    documents = (torch.arange(7) < lengths[:, None]).long()
    tokens = tokens.masked_fill(documents == 0, PAD)
    tokens[torch.arange(24), lengths - 1] = END
    # padding is forbidden here as it is there
    search = search.replace(
        limits={"max_length": LONGEST}, blocking={"forbidden": (PAD,)},
    )  # fmt: skip
    theirs = network.generate(
        tokens, attention_mask=documents, max_new_tokens=LONGEST, bad_words_ids=[[PAD]], do_sample=False,
        return_dict_in_generate=True, output_scores=True, **options,
    )  # fmt: skip
    ours = generate(Marian(network), Batch(tokens, documents=documents), search, end=END)
    flat = [h for hs in ours for h in hs]
    wanted = [row[row != PAD].tolist() for row in theirs.sequences[:, 1:]]
    assert [h.tokens + [END] * h.finished for h in flat] == wanted
    assert len({len(text) for text in wanted}) > 3
    if options["num_beams"] > 1:
        torch.testing.assert_close(torch.tensor([h.score for h in flat]), theirs.sequences_scores)

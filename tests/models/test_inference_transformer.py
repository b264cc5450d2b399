"""A Transformer laid out for writing says what the Transformer says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate
from unmask.kernels.prepacked import PrepackedLinear
from unmask.kernels.processor import Settled
from unmask.models.inference_transformer import InferenceTransformer, settled, writer_layout
from unmask.models.transformer import Transformer
from unmask.models.transformer_model import TransformerModel
from unmask.models.writer import State, Writer
from unmask.nn.lora import LoRALinear, adapters
from unmask.types import Batch

V, START, END = 40, 1, 2


def model(**fields: object) -> TransformerModel:
    config = Transformer(
        vocabulary=V, dim=16, encoder_layers=1, decoder_layers=2, encoder_heads=2, decoder_heads=4,
        encoder_hidden=24, decoder_hidden=20, std=0.3, output_bias=True,
    ).replace(**fields)  # fmt: skip
    made = config.build(seed=1).double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(2)
    for p in made.parameters():  # biases and norms too
        p += 0.1 * torch.randn(p.shape, dtype=p.dtype, generator=generator)
    return made


def sources(B: int = 6, S: int = 7) -> Batch:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.arange(B) % (S - 1) + 2
    documents = (torch.arange(S) < lengths[:, None]).long()
    return Batch(torch.randint(3, V, (B, S), generator=generator) * documents, documents=documents)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("fields", [{}, {"norm": "pre", "activation": "silu"}, {"positions": "halves", "length": 90}])
def test_it_says_what_the_model_says(width: int, fields: dict[str, object]) -> None:
    slow = model(**fields)
    quick = writer_layout(slow)
    assert isinstance(quick, InferenceTransformer)
    states = [one.prefill(sources(), width) for one in (slow, quick)]
    tokens_N, kept = states[0].first, torch.arange(6)
    generator = torch.Generator().manual_seed(4)
    for step in range(70):  # beyond the places that are made at first
        wanted, found = (one.decode_step(tokens_N, state) for one, state in zip((slow, quick), states, strict=True))
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        kept = torch.tensor([4, 0, 2]) if step == 2 else torch.arange(len(kept))
        slots = torch.randint(0, width, (len(kept), width), generator=generator)
        rows_N = (kept[:, None] * width + slots).flatten()
        for state in states:
            state.select(rows_N)
        tokens_N = random(len(rows_N), seed=step)


def test_it_is_searched_like_the_model() -> None:
    slow = model()
    slow.heads["next"].bias[END] += 2.5
    quick = writer_layout(slow)
    for search in (Search(limits=Limits(max_length=20)), Search(beam_size=4, n_best=2, limits=Limits(max_length=20))):
        wanted, found = (generate(one, sources(), search, end=END) for one in (slow, quick))
        assert [[h.tokens for h in hs] for hs in found] == [[h.tokens for h in hs] for hs in wanted]
        assert len({len(hs[0].tokens) for hs in wanted}) > 1


class Own(Writer):
    """A writer of another make."""

    def prefill(self, batch: Batch, width: int = 1) -> State:
        raise NotImplementedError

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        raise NotImplementedError


def test_other_writers_are_packed_in_bfloat16_or_refuse() -> None:
    adapted = model()
    adapted.decoder.blocks[0].attention.f.query = LoRALinear(adapted.decoder.blocks[0].attention.f.query, 2)
    assert isinstance(writer_layout(adapted, "bf16").decoder.blocks[0].attention.f.key, PrepackedLinear)
    with pytest.raises(UnmaskError, match="leave --precision out for this model"):
        writer_layout(Own(), "bf16")


def test_what_auto_chose_is_said_where_there_was_a_choice() -> None:
    assert settled(model(), "auto").note.startswith("Computed in fp32")
    assert settled(Own(), "auto") == settled(model(), "fp32") == Settled("fp32")


def test_what_it_is_not_made_for_stays_as_it_is() -> None:
    adapted = model()
    adapted.decoder.blocks[0].attention.f.query = LoRALinear(adapted.decoder.blocks[0].attention.f.query, 2)
    assert adapters(adapted)
    assert writer_layout(adapted) is adapted
    assert isinstance(writer_layout(Own()), Own)


def test_it_ends_where_the_model_ends() -> None:
    quick = writer_layout(model(length=9))
    state = quick.prefill(sources())
    for _ in range(9):
        quick.decode_step(state.first, state)
    with pytest.raises(UnmaskError, match="9 positions"):
        quick.decode_step(state.first, state)


def test_an_unknown_token_is_named() -> None:
    quick = writer_layout(model())
    state = quick.prefill(sources())
    with pytest.raises(UnmaskError, match=f"id {V} "):
        quick.decode_step(torch.full_like(state.first, V), state)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu_new"])
def test_in_float32_its_weights_are_in_the_order_of_the_processor(activation: str) -> None:
    slow = model(activation=activation).float()
    quick = InferenceTransformer(slow)
    assert {block.up.dtype for block in quick.blocks} == {torch.float32}
    assert all(block.up.ordered == torch.backends.mkldnn.is_available() for block in quick.blocks)
    states = [one.prefill(sources(), 2) for one in (slow, quick)]
    for step in range(5):
        tokens_N = random(12, seed=step)
        wanted, found = (one.decode_step(tokens_N, state) for one, state in zip((slow, quick), states, strict=True))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("width", [1, 3])
def test_in_bfloat16_it_says_about_the_same(width: int) -> None:
    """Products are rounded to eight bits, nothing else is: probabilities stay within a few hundredths."""
    slow = model(dim=64, std=0.1).float()
    quick = InferenceTransformer(slow, "bf16")
    states = [one.prefill(sources(), width) for one in (slow, quick)]
    tokens_N = states[0].first
    for step in range(12):
        wanted, found = (
            one.decode_step(tokens_N, state).float() for one, state in zip((slow, quick), states, strict=True)
        )
        assert not torch.equal(wanted, found)
        torch.testing.assert_close(found.softmax(-1), wanted.softmax(-1), rtol=0, atol=0.04)
        tokens_N = random(len(tokens_N), seed=step)

"""Numbers at the edge, for every way attention is computed: nothing to see, nothing to read, one token, no targets,
values that overflow, NaN and infinity. What comes out is defined (docs/reliability.md).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from unmask.huggingface.table import as_heads
from unmask.kernels.prepacked import prepacked
from unmask.models.bert import Bert
from unmask.models.gpt import Gpt2
from unmask.models.inference_encoder import InferenceStack, inference_layout
from unmask.models.inference_transformer import writer_layout
from unmask.models.transformer import Transformer
from unmask.nn import ALiBi, Attention, Bias, LinearChainCRF, Mask, Position, T5Bias, TransformerXL, record_attention
from unmask.nn.dropout import Dropout
from unmask.nn.state_attention import AdditiveAttention, DotAttention, GeneralAttention
from unmask.types import Batch

B, T, D, H, V = 3, 8, 16, 2, 20
BROKEN = 7  # a token whose vector is not finite


class Written(nn.Module):
    """Attention written out, which is what happens while someone looks at the weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: object, **more: object) -> Tensor:
        with record_attention(self.model):
            return self.model(*args, **more)


def autocast(model: nn.Module) -> Callable[..., Tensor]:
    """As it learns in bfloat16: written out up to 256 tokens, where gradients are wanted."""

    def forward(*args: object, **more: object) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(*args, **more)

    return forward


# Every way to compute the hidden states of an encoder, and how far it may be from the written form in float64.
ENCODERS: dict[str, tuple[Callable[[nn.Module], Callable[..., Tensor]], float]] = {
    "written out": (Written, 1e-5),
    "fused": (lambda model: model, 1e-5),
    "bfloat16, learning": (autocast, 0.1),
    "bfloat16, all": (lambda model: copy.deepcopy(model).to(torch.bfloat16), 0.2),
    "quick": (lambda model: inference_layout(model), 1e-5),
    "quick, bfloat16": (lambda model: inference_layout(model, "bf16"), 0.1),
    "packed, bfloat16": (lambda model: prepacked(model), 0.1),
}


@pytest.fixture(params=ENCODERS)
def way(request) -> str:
    return request.param


def encoder(length: int = 16) -> nn.Module:
    config = Bert(vocabulary=V, dim=D, layers=2, heads=H, hidden=32, length=length, std=0.3, dropout=0.0)
    return config.replace(attention_dropout=0.0).build(as_heads({"mlm": 0, "classification": 2}), seed=1).eval()


def tokens(rows: int = B, width: int = T) -> Tensor:
    found = torch.randint(0, V - 1, (rows, width), generator=torch.Generator().manual_seed(0))
    return found.masked_fill_(found == BROKEN, BROKEN + 1)


MASKS = {
    "none": lambda: None,
    "padding": lambda: torch.tensor([[1] * 8, [1] * 3 + [0] * 5, [1] + [0] * 7]),
    "packed": lambda: torch.tensor([[1, 1, 2, 2, 2, 3, 3, 0], [1, 2, 3, 4, 5, 6, 7, 8], [1] * 8]),
    "nothing but padding": lambda: torch.tensor([[0] * 8, [1] * 8, [0] * 8]),
}


@pytest.mark.parametrize("documents", MASKS)
def test_what_is_hidden_changes_nothing_and_all_is_finite(way, documents):
    model, batch = encoder(), Batch(tokens(), documents=MASKS[documents]())
    compute, far = ENCODERS[way]
    found = compute(model)(batch).float()
    expected = Written(copy.deepcopy(model).double())(batch).float()
    assert found.isfinite().all()
    assert (found - expected).abs().max() < far


@pytest.mark.parametrize("shape", [(0, T), (2, 0), (0, 0)])
def test_a_batch_without_rows_or_tokens_has_no_hidden_states(way, shape):
    compute, _ = ENCODERS[way]
    assert compute(encoder())(Batch(tokens(*shape))).shape == (*shape, D)
    assert compute(encoder())(Batch(tokens(*shape), documents=torch.ones(shape).long())).shape == (*shape, D)


@pytest.mark.parametrize("padded", [1, 4])
def test_one_token_is_a_sequence(way, padded):
    model, compute = encoder(), ENCODERS[way][0]
    documents = torch.tensor([[1] + [0] * (padded - 1)] * B)
    alone = compute(model)(Batch(tokens(B, 1))).float()
    beside = compute(model)(Batch(tokens(B, padded), documents=documents)).float()[:, :1]
    assert alone.isfinite().all()
    expected = compute(model)(Batch(tokens(B, padded)[:, :1])).float()
    assert (beside - expected).abs().max() < max(ENCODERS[way][1], 1e-5)


def test_a_row_that_is_not_finite_leaves_the_others_alone(way):
    model, compute = encoder(), ENCODERS[way][0]
    given = tokens()
    expected = compute(model)(Batch(given)).float()
    with torch.no_grad():
        model.embedding.token.weight[BROKEN] = math.nan
    given[0, 3] = BROKEN
    found = compute(model)(Batch(given)).float()
    assert found[0].isnan().any()
    assert torch.allclose(found[1:], expected[1:], atol=1e-6)


def test_states_as_large_as_they_come_are_finite(way):
    """The residual sums grow with the weights; the norms bring them back. In bfloat16 nothing overflows earlier."""
    model = encoder()
    with torch.no_grad():
        for block in model.stack.blocks:
            block.attention.f.output.weight.mul_(1e6)
            block.attention.f.query.weight.mul_(1e4)
            block.attention.f.key.weight.mul_(1e4)
            block.feedforward.f.down.weight.mul_(1e9)
    assert ENCODERS[way][0](model)(Batch(tokens(), documents=MASKS["padding"]())).isfinite().all()


# ------------------------------------------------------------------------------- attention with biases and scores

SCHEMES = {
    "none": lambda: Position(),
    "bias": lambda: T5Bias(H, 8, 16),
    "alibi": lambda: ALiBi(H),
    "score": lambda: TransformerXL(D, H),
}
BIASES = {
    "all": Bias(),
    "causal": Mask(causal=True).bias(T, T),
    "causal, padding": (Mask(causal=True) & Mask(lengths=torch.tensor([8, 3, 0]))).bias(T, T),
    "window": Mask(window=1).bias(T, T),
    "added": Bias(torch.full((T, T), -1e30)),
    "hidden by adding": Bias(torch.full((T, T), -math.inf)),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("written", [False, True], ids=["fused", "written out"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_attention_and_its_gradients_are_finite(scheme, bias, written, dtype, size):
    torch.manual_seed(0)
    attention = Attention(D, H, position=SCHEMES[scheme]()).to(dtype)
    x = (size * torch.randn(B, T, D)).to(dtype).requires_grad_()
    compute = Written(attention) if written else attention
    y = compute(x, bias=BIASES[bias])
    assert y.isfinite().all()
    y.float().mean().backward()
    assert x.grad.isfinite().all()
    if bias == "hidden by adding":
        assert torch.equal(y, attention.output.bias.expand_as(y))


@pytest.mark.parametrize("written", [False, True], ids=["fused", "written out"])
def test_scores_beyond_half_precision_overflow_where_they_are_written_out_only(written):
    """fp16 ends at 65,504: the fused kernels sum in float32; written out, the score is infinite and the answer NaN."""
    attention = Attention(D, 1).half()
    with torch.no_grad():
        for layer in (attention.query, attention.key):
            layer.weight.copy_(torch.eye(D))
            layer.bias.zero_()
    y = (Written(attention) if written else attention)(torch.full((1, 2, D), 250.0).half())
    assert bool(y.isnan().any()) is written


@pytest.mark.parametrize("kind", [DotAttention, GeneralAttention, AdditiveAttention])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_of_states_at_the_edge(kind, dtype):
    attention = kind(D, D).to(dtype)
    states, query = torch.randn(B, T, D).to(dtype).requires_grad_(), (1e3 * torch.randn(B, 2, D)).to(dtype)
    y = attention(query, attention.keys(states, torch.tensor([8, 1, 0])))
    assert y.isfinite().all()
    assert y[2].eq(0).all()
    y.float().sum().backward()
    assert states.grad.isfinite().all()
    assert attention(query[:0], attention.keys(states[:0])).shape == (0, 2, D)
    assert attention(query, attention.keys(states[:, :1])).isfinite().all()


# ------------------------------------------------------------------------------- what is written token by token


def writer() -> nn.Module:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_heads": H, "decoder_heads": H}
    config = Transformer(vocabulary=V, dim=D, encoder_hidden=32, decoder_hidden=32, **sizes)
    return config.build(seed=1).eval()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("quick", [False, True])
def test_a_source_of_padding_can_be_written_from(quick, precision):
    if not quick and precision == "bf16":
        pytest.skip("that is the quick one")
    model = writer()
    write = writer_layout(model, precision) if quick else model
    documents = torch.tensor([[1] * T, [0] * T, [1] + [0] * 7])
    with torch.no_grad():
        state = write.prefill(Batch(tokens(), documents=documents), 2)
        for step in range(3):
            logits = write.decode_step(torch.full((2 * B,), step + 3), state)
            assert logits.shape == (2 * B, V)
            assert logits.isfinite().all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_token_and_no_rows_can_be_written_from(precision):
    write = writer_layout(writer(), precision)
    with torch.no_grad():
        assert write.decode_step(torch.tensor([3]), write.prefill(Batch(tokens(1, 1)))).isfinite().all()
        assert write.decode_step(torch.zeros(0).long(), write.prefill(Batch(tokens(0, 4)))).shape == (0, V)


# ------------------------------------------------------------------------------- nothing to learn from


@pytest.mark.parametrize("head", ["mlm", "classification"])
def test_an_answer_at_no_place_is_empty_and_its_gradient_zero(head):
    model = encoder().train()
    hidden = model(Batch(tokens()))
    answers = model.answer(head, hidden, torch.zeros(0).long())
    assert answers.shape == (0, V if head == "mlm" else 2)
    answers.sum().backward()
    assert all(p.grad is None or p.grad.eq(0).all() for p in model.parameters())


def test_a_language_model_of_one_token_and_of_none():
    model = (
        Gpt2(vocabulary=V, dim=D, layers=1, heads=H, hidden=32, length=T).build(as_heads({"next": 0}), seed=0).eval()
    )
    assert model(Batch(tokens(2, 1))).isfinite().all()
    assert model(Batch(tokens(0, 3))).shape == (0, 3, D)
    with torch.no_grad():
        state = model.prefill(Batch(tokens(2, 1)))
        assert model.decode_step(torch.tensor([3, 4]), state).isfinite().all()


@pytest.mark.parametrize("lengths", [[], [1], [1, 1, 2], [0, 1]])
@pytest.mark.parametrize("size", [1.0, 1e30])
def test_tags_of_one_word_and_of_none(lengths, size):
    crf = LinearChainCRF(4)
    emissions = (size * torch.randn(sum(lengths), 4)).requires_grad_()
    said = crf.log_likelihood(emissions, torch.zeros(sum(lengths)).long(), lengths)
    assert said.shape == (len(lengths),)
    assert said.isfinite().all()
    said.sum().backward()
    assert emissions.grad.isfinite().all()
    assert [len(path) for path in crf.decode(emissions, lengths)] == lengths
    assert crf.marginals(emissions, lengths).isfinite().all()


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_of_nothing_and_of_the_largest_numbers(rate, dtype):
    part = Dropout(rate).train()
    assert part(torch.zeros(0, 3, dtype=dtype)).shape == (0, 3)
    large = torch.full((64,), torch.finfo(dtype).max / 4, dtype=dtype)
    assert part(large).isfinite().all()


def test_quick_blocks_are_meant_where_they_are_said():
    assert type(inference_layout(encoder()).stack) is InferenceStack

"""What all models have in common, held by every page: build, hidden states, answers, summaries, writing."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unmask import models
from unmask.data import collate
from unmask.data.bitext.batching import source_batch
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models import (
    T5,
    Albert,
    Bert,
    ConvS2S,
    Electra,
    Elmo,
    Gpt,
    Gpt2,
    IbBert,
    MobileBert,
    ModernBert,
    RecurrentNetwork,
    Roberta,
    Seq2Seq,
    Transformer,
    TransformerXl,
)
from unmask.models.captioner import Captioner
from unmask.models.cct import Cct
from unmask.models.cpc import Cpc
from unmask.models.deit import Deit
from unmask.models.ecg_cnn import EcgCnn
from unmask.models.han import Han
from unmask.models.hubert import Hubert
from unmask.models.log_mel import LogMelEncoder
from unmask.models.mae import Mae
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.mina import Mina
from unmask.models.model import Model
from unmask.models.model_config import ModelConfig
from unmask.models.resnet import ResNet
from unmask.models.shared_recurrent import SharedRecurrent
from unmask.models.signal_cpc import SignalCpc
from unmask.models.signal_recurrent import SignalRecurrent
from unmask.models.signal_transformer import SignalTransformer
from unmask.models.swin import Swin
from unmask.models.vector_decoder import VectorDecoder
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.models.wavenet import WaveNet
from unmask.types import Batch, Example, Head, Kind, concatenate

V, PAD, START, END, F = 30, 0, 1, 2, 6

SMALL = {"vocabulary": V, "dim": 16, "layers": 2, "heads": 2, "length": 24}
NARROW = {"vocabulary": V, "dim": 12, "hidden": 10, "layers": 2}
RECURRENT = {"vocabulary": V, "dim": 12, "hidden": 12, "layers": 2}
SIDES = {"encoder_layers": 2, "decoder_layers": 2}
HALVES = {"encoder_heads": 2, "decoder_heads": 2, "encoder_hidden": 20, "decoder_hidden": 20}
T5S = {"vocabulary": V, "dim": 16, "heads": 2, "head_dim": 8, "hidden": 20, **SIDES}

PAGES: dict[str, ModelConfig] = {
    "bert": Bert(**SMALL, hidden=20),
    "roberta": Roberta(**SMALL, hidden=20, padding=0),
    "albert": Albert(**SMALL, hidden=20, factor=8),
    "electra": Electra(**SMALL, hidden=20, factor=8, generator=0.5),
    "mobilebert": MobileBert(**SMALL, hidden=20, factor=8, bottleneck=8),
    "ib-bert": IbBert(**SMALL, hidden=20, factor=8, bottleneck=24),
    "modernbert": ModernBert(**SMALL, hidden=20, local=6, padding=0),
    "modernbert-mean": ModernBert(**SMALL, hidden=20, local=0, every=4, padding=0, pooling="mean", tied=False),
    "gpt": Gpt(**SMALL),
    "gpt2": Gpt2(**SMALL, padding=0),
    "transformer-xl": TransformerXl(**{**SMALL, "length": None}, hidden=20, memory=30),
    "rnn": RecurrentNetwork(**NARROW, cell="rnn"),
    "lstm": RecurrentNetwork(**NARROW, cell="lstm"),
    "gru-windows": RecurrentNetwork(**NARROW, cell="gru", tbptt=3),
    "lstm-bidirectional": RecurrentNetwork(**NARROW, bidirectional=True),
    "lstm-shared": SharedRecurrent(**NARROW),
    "han": Han(vocabulary=V, dim=12, hidden=5, context=4, separator=3),
    "elmo": Elmo(
        vocabulary=V, continues=18, characters=4, widths=(1, 2), filters=(4, 6), dim=8, hidden=12, highways=1, task=5
    ),
    "elmo-own": Elmo(
        vocabulary=V, continues=18, characters=4, widths=(1, 2), filters=(4, 6), dim=8, layers=0, highways=1, task=5
    ),
    "transformer": Transformer(vocabulary=V, dim=16, **SIDES, **HALVES),
    "transformer-pre": Transformer(vocabulary=V, dim=16, **SIDES, **HALVES, norm="pre", positions="halves"),
    "t5": T5(**T5S),
    "t5-v1.1": T5(**T5S, feedforward="gated-gelu", output="untied", buckets=8, furthest=12),
    "convs2s": ConvS2S(
        vocabulary=V, dim=12, encoder_widths=(12, 16), decoder_widths=(12, 16), kernel=3, length=24, output_dim=10
    ),
    "seq2seq": Seq2Seq(**RECURRENT, attention="none", reverse=True),
    "seq2seq-dot": Seq2Seq(**RECURRENT, attention="dot", cell="gru"),
    "seq2seq-general": Seq2Seq(**RECURRENT, attention="general", input_feeding=True, bidirectional=False),
    "seq2seq-additive": Seq2Seq(**RECURRENT, attention="additive", tied=False),
    "captioner": Captioner(vocabulary=V, dim=16, **SIDES, **HALVES, size=8, patch=4, channels=3),
    "vector": VectorDecoder(vocabulary=V, dim=12, hidden=10, layers=2, features=F),
}
HEADS = as_heads({"tagging": 4, "classification": 3})
PICTURES: dict[str, ModelConfig] = {
    "vit": Vit(size=8, patch=4, dim=8, layers=2, heads=2, hidden=12),
    "deit": Deit(size=8, patch=4, dim=8, layers=2, heads=2, hidden=12),
    "mae": Mae(
        size=8, patch=4, dim=8, layers=1, heads=2, hidden=12,
        decoder_dim=8, decoder_layers=1, decoder_heads=2, decoder_hidden=12,
    ),
    "swin": Swin(size=8, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=2),
    "resnet": ResNet(size=8, stem="small", dim=4, widths=(4, 8), depths=(1, 1)),
    "cct": Cct(size=8, dim=8, layers=2, heads=2, hidden=12, convolutions=2),
    "vgg": Vgg(size=8, widths=(4, 8), depths=(1, 2)),
}  # fmt: skip
FRAMES: dict[str, Any] = {
    "channels": (6, 8, 8), "kernels": (7, 3, 2), "strides": (4, 2, 2), "dim": 12, "layers": 2, "heads": 2, "hidden": 20,
    "position_kernel": 6, "position_groups": 3, "delay_dims": (6, 8), "delay_kernels": (3, 2),
    "delay_dilations": (1, 2), "projection": 5, "vector": 4,
}  # fmt: skip
RECORDINGS: dict[str, ModelConfig] = {
    "wav2vec2": Wav2Vec2(**FRAMES),
    "wav2vec2-pre-norm": Wav2Vec2(**FRAMES, pre_norm=True, conv_norm="layer", conv_bias=True, mixes=True),
    "hubert": Hubert(**FRAMES),
    "log-mel": LogMelEncoder(
        **{k: x for k, x in FRAMES.items() if k not in ("channels", "kernels", "strides")}, rate=800, bands=6
    ),
    "cpc": Cpc(channels=(6, 8), kernels=(7, 6), strides=(4, 4), dim=12, layers=2),
    "wavenet": WaveNet(vocabulary=16, dim=6, skip=8, dilations=(1, 2, 4)),
    "mfcc-cnn": MfccCnn(rate=1_000, bands=8, cepstra=4, widths=(6, 8), strides=(1, 2), kernel=3),
}
SIGNALS: dict[str, Any] = {
    "mina": Mina(segment=10, kernel=4, filters=4, hidden=3, outputs=5, leads=2),
    "cnn": Mina(segment=10, kernel=4, filters=4, attention="none", recurrent=False, low=(0.0,), high=(0.0,)),
    "ecg-cnn": EcgCnn(blocks=5, filters=3, doubled=2, kernel=5, leads=2),
    "ecg-cnn-even": EcgCnn(blocks=6, filters=3, doubled=3, kernel=4),
    "signal-cpc": SignalCpc(channels=(5, 6), strides=(5, 2), dim=8, layers=2),
    "signal-transformer": SignalTransformer(segment=10, dim=8, layers=2, heads=2, hidden=12),
    "signal-recurrent": SignalRecurrent(segment=10, dim=6, hidden=4, leads=2),
    "signal-recurrent-forward": SignalRecurrent(segment=10, dim=6, hidden=4, cell="gru", bidirectional=False),
    "signal-transformer-rotary": SignalTransformer(
        segment=10, dim=8, layers=2, heads=2, hidden=12, hides=True, position="rotary"
    ),
}
READERS = [name for name, page in PAGES.items() if not page.build().reads_source]
WRITERS = [name for name, page in PAGES.items() if page.build().writes]

pages = pytest.mark.parametrize("name", PAGES)
readers = pytest.mark.parametrize("name", READERS)
OF_TEXTS = [n for n in PAGES if n not in READERS and PAGES[n].features is None and n != "captioner"]
writers = pytest.mark.parametrize("name", WRITERS)


def built(name: str, heads: dict[str, Head] | None = None) -> Model:
    """The model of a page with large random weights, so that no part of it says next to nothing."""
    model = PAGES[name].build(heads, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def texts(*lengths: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, V, n) for n in lengths]


def picture(values: np.ndarray) -> Example:
    """A picture of 4 patches [4, 48] as a captioner reads it."""
    tokens = np.full(5, int(Kind.SIGNAL))
    tokens[0] = int(Kind.CLS)
    return Example(tokens, signal=(np.arange(1, 5), values))


def sources(name: str, rows: int) -> list[Batch]:
    """Sources of several lengths, one a batch: prompts of a language model; texts, vectors or pictures."""
    if PAGES[name].features is not None:
        values = torch.randn(rows, F, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        return [Batch.of_vectors(values[i : i + 1]) for i in range(rows)]
    if name == "captioner":
        values = torch.randn(rows, 4, 48, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        return [collate.pad([picture(one)], 0, multiple=1) for one in values.numpy()]
    lengths = [5, 1, 8, 3][:rows]
    if name in READERS:
        return [Batch(torch.from_numpy(text)[None]) for text in texts(*lengths)]
    return [source_batch([text], PAD, END) for text in texts(*lengths)]


def together(batches: list[Batch]) -> Batch:
    """Several sources as the rows of one batch, short ones filled up on the right."""
    if batches[0].signal is not None:
        return concatenate(batches)
    longest = max(batch.tokens.shape[1] for batch in batches)
    rows = [torch.nn.functional.pad(batch.tokens[0], (0, longest - batch.tokens.shape[1])) for batch in batches]
    lengths = torch.tensor([batch.tokens.shape[1] for batch in batches])
    return Batch(torch.stack(rows), documents=(torch.arange(longest) < lengths[:, None]).long())


def whole(name: str, model: Model, source: Batch, written: Tensor) -> Tensor:
    """[V]: what follows the tokens `written`, the first of which started them, by one forward over all of them."""
    if name in READERS:
        batch = Batch(torch.cat([source.tokens[0, :-1], written])[None])
    else:
        batch = Batch(written[None], source=source)
    hidden_BTD = model(batch)
    return model.answer("next", hidden_BTD, torch.tensor([hidden_BTD.shape[1] - 1]), batch)[0]


def test_no_page_is_left_out() -> None:
    for module in pkgutil.iter_modules(models.__path__):
        importlib.import_module(f"unmask.models.{module.name}")

    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    concrete = {
        kind
        for kind in below(ModelConfig)
        if kind.__module__.startswith("unmask.models.") and is_dataclass(kind) and not kind.__abstractmethods__
    }
    assert concrete == {
        type(page) for page in (*PAGES.values(), *PICTURES.values(), *RECORDINGS.values(), *SIGNALS.values())
    }


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_answered_alike_alone_padded_and_packed(name: str) -> None:
    page = PICTURES[name]
    model = page.build({"image_classification": Head("sequence", 3)}, seed=0).eval()
    processor = ImageProcessor(size=8, patch=page.patch).for_model(page)
    rng = np.random.default_rng(0)
    examples = [processor.example(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)) for _ in range(3)]
    T = len(examples[0].tokens)

    def answers(batch: Batch) -> Tensor:
        assert batch.starts is not None
        return model.answer("image_classification", model(batch), batch.starts, batch)

    with torch.no_grad():
        alone = torch.cat([answers(processor.collate([one])) for one in examples])
        torch.testing.assert_close(answers(processor.collate(examples)), alone, atol=1e-5, rtol=1e-4)
        packed = collate.pack(examples, 2 * T, processor.pad)
        torch.testing.assert_close(answers(packed), alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_are_answered_alike_alone_padded_and_packed(name: str) -> None:
    page = RECORDINGS[name]
    heads = {"tagging": Head("token", 3), "classification": Head("sequence", 2), "vector": Head("embedding", 4)}
    model = page.build(heads, seed=0).eval()
    processor = RecordingProcessor().for_model(page)
    rng = np.random.default_rng(0)
    examples = [processor.example(rng.standard_normal(n).astype(np.float32)) for n in (400, 31, 97, 250)]

    def answers(batch: Batch) -> list[Tensor]:
        assert batch.starts is not None
        hidden_BTD = model(batch)
        sizes = [len(one.tokens) for one in examples][: len(batch.starts)]
        places = torch.cat([start + torch.arange(n) for start, n in zip(batch.starts, sizes, strict=True)])
        of_recordings = [model.answer(head, hidden_BTD, batch.starts, batch) for head in ("classification", "vector")]
        return [hidden_BTD.flatten(0, 1)[places], model.answer("tagging", hidden_BTD, places, batch), *of_recordings]

    longest = max(len(one.tokens) for one in examples)
    with torch.no_grad():
        padded = answers(processor.collate(examples))
        for found, wanted in zip(answers(collate.pack(examples, max(40, longest), processor.pad)), padded, strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        first = answers(processor.collate(examples[:1]))
        for found, wanted in zip(first, padded, strict=True):
            torch.testing.assert_close(found, wanted[: len(found)], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_are_answered_alike_alone_padded_and_packed(name: str) -> None:
    page = SIGNALS[name]
    model = page.build({"tagging": Head("token", 3), "classification": Head("sequence", 2)}, seed=0).double().eval()
    processor, rng = SignalProcessor().for_model(page), np.random.default_rng(0)
    with torch.no_grad():
        for key, x in model.state_dict().items():
            if "running" in key:
                x.copy_(torch.from_numpy(rng.uniform(0.5, 2, len(x))))  # as after some training
    examples = [processor.example(rng.standard_normal((n, page.leads))) for n in (400, 20, 97, 250)]

    def answers(batch: Batch, sizes: list[int]) -> list[Tensor]:
        assert batch.starts is not None
        assert batch.signal is not None
        batch = replace(batch, signal=batch.signal.map(lambda x: x.double() if x.is_floating_point() else x))
        hidden_BTD = model(batch)
        assert hidden_BTD.shape == (*batch.tokens.shape, page.width)
        places = torch.cat([start + torch.arange(n) for start, n in zip(batch.starts, sizes, strict=True)])
        of_segments = model.answer("tagging", hidden_BTD, places, batch)
        return [of_segments, model.answer("classification", hidden_BTD, batch.starts, batch)]

    with torch.no_grad():
        each = [answers(processor.collate([one]), [len(one.tokens)]) for one in examples]
        alone = [torch.cat(found) for found in zip(*each, strict=True)]
        sizes = [len(one.tokens) for one in examples]
        for batch in (processor.collate(examples), collate.pack(examples, 130, processor.pad)):
            for found, wanted in zip(answers(batch, sizes), alone, strict=True):
                torch.testing.assert_close(found, wanted)


@pages
def test_a_page_builds_a_model_of_its_numbers(name: str) -> None:
    page = PAGES[name]
    model, again, other = page.build(seed=0), page.build(seed=0), page.build(seed=1)
    assert isinstance(model, Model)
    assert model.config == page
    assert model.positions == page.length
    assert len(model.blocks) > 0 or name == "elmo-own"
    assert list(model.state_dict()) == list(again.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    bare = model.without_heads()
    assert not bare.heads
    assert bare.heads is not model.heads
    assert {*bare.parameters()} <= {*model.parameters()}


@pages
def test_hidden_states_are_as_wide_as_the_page_says_and_answers_are_of_single_places(name: str) -> None:
    heads = HEADS if name in READERS else as_heads({"next": 0})
    model = built(name, heads)
    if name in READERS:
        batch = Batch(torch.from_numpy(np.stack(texts(7, 7))))
    else:
        batch = Batch(torch.randint(3, V, (2, 7)), source=together(sources(name, 2)))
    hidden_BTD = model(batch)
    assert hidden_BTD.shape == (2, 7, PAGES[name].width)
    everywhere, places = torch.arange(14), torch.tensor([0, 3, 6, 7, 13])
    for head in heads:
        every = model.answer(head, hidden_BTD, everywhere, batch)
        found = model.answer(head, hidden_BTD, places, batch)
        assert found.shape == (5, heads[head].outputs or V)
        torch.testing.assert_close(found, every[places])
        assert model.answer(head, hidden_BTD, places[:0], batch).shape[0] == 0
    if "classification" in heads:  # one answer for a sequence, wherever in it a model that reads to its end is asked
        if model.causal:
            torch.testing.assert_close(every[:7], every[:1].expand(7, -1))
        assert not torch.allclose(every[0], every[7])


@readers
def test_packed_padded_and_single_sequences_give_the_same(name: str) -> None:
    model = built(name, HEADS)
    examples = [Example(tokens) for tokens in texts(9, 4, 14, 1, 6)]

    def answers(batch: Batch) -> list[Tensor]:
        hidden_BTD, found = model(batch), []
        assert batch.starts is not None
        for start, example in zip(batch.starts.tolist(), examples, strict=False):
            places = torch.arange(start, start + len(example.tokens))
            of_tokens = model.answer("tagging", hidden_BTD, places, batch)
            of_sequence = model.answer("classification", hidden_BTD, places[:1], batch)
            found.append(torch.cat([of_tokens.flatten(), of_sequence.flatten()]))
        return found

    with torch.no_grad():
        padded, packed = answers(collate.pad(examples, PAD)), answers(collate.pack(examples, 16, PAD))
        for i, example in enumerate(examples):
            row = Batch(torch.from_numpy(example.tokens)[None], starts=torch.tensor([0]))
            places = torch.arange(len(example.tokens))
            hidden_BTD = model(row)
            of_tokens = model.answer("tagging", hidden_BTD, places, row)
            of_sequence = model.answer("classification", hidden_BTD, places[:1], row)
            alone = torch.cat([of_tokens.flatten(), of_sequence.flatten()])
            torch.testing.assert_close(padded[i], alone, atol=1e-9, rtol=1e-9)
            torch.testing.assert_close(packed[i], alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", OF_TEXTS)
def test_pairs_are_the_same_padded_and_alone(name: str) -> None:
    """Whatever stands at padding of the source, and behind the end of a target."""
    model, alone = built(name), sources(name, 3)
    tokens = torch.randint(3, V, (3, 6), generator=torch.Generator().manual_seed(4))
    padded = together(alone)
    assert padded.documents is not None
    changed = replace(padded, tokens=padded.tokens.where(padded.documents > 0, 7))
    with torch.no_grad():
        hidden_BTD = model(Batch(tokens, source=padded))
        torch.testing.assert_close(model(Batch(tokens, source=changed)), hidden_BTD)
        for i, source in enumerate(alone):
            row = Batch(tokens[i : i + 1, : 6 - i], source=source)
            torch.testing.assert_close(model(row)[0], hidden_BTD[i, : 6 - i])


@pytest.mark.parametrize("name", OF_TEXTS)
def test_every_token_of_a_source_counts(name: str) -> None:
    model, (source, *_) = built(name), sources(name, 1)
    tokens = torch.from_numpy(np.stack(texts(6)))
    with torch.no_grad():
        before = model(Batch(tokens, source=source))
        for place in range(source.tokens.shape[1]):
            changed = source.tokens.clone()
            changed[:, place] = (changed[:, place] - 2) % (V - 3) + 3
            assert (model(Batch(tokens, source=Batch(changed))) - before).abs().max() > 1e-6


@pages
def test_only_where_a_model_is_causal_no_token_sees_those_after_it(name: str) -> None:
    model = built(name, HEADS if name in READERS else None)
    tokens = torch.from_numpy(np.stack(texts(8)))
    tokens[0, 5] = 4
    changed = tokens.clone()
    changed[0, 5] = 5
    source = None if name in READERS else sources(name, 1)[0]
    with torch.no_grad():
        one, two = (model(Batch(x, source=source)) for x in (tokens, changed))
    assert not torch.allclose(one[0, 5:], two[0, 5:])
    assert torch.equal(one[0, :4], two[0, :4]) == model.causal
    if name in READERS:  # a summary sees all
        first = torch.tensor([0])
        summaries = [model.summary(x, first, Batch(y)) for x, y in ((one, tokens), (two, changed))]
        assert not torch.allclose(*summaries)


@pytest.mark.parametrize("width", [1, 3])
@writers
def test_what_is_written_step_by_step_is_what_one_forward_says(name: str, width: int) -> None:
    """Sources of several lengths; hypotheses are repeated and exchanged, sources finish and change their order."""
    model, read = built(name), sources(name, 4)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        state = model.prefill(together(read), width)
        owners = torch.arange(4).repeat_interleave(width)
        written = state.first[:, None]
        assert state.width == width
        if name in READERS:
            assert state.first.tolist() == [int(read[i].tokens[0, -1]) for i in owners.tolist()]
        else:
            assert set(state.first.tolist()) == {model.config.start}
        for step in range(7):
            logits = model.decode_step(written[:, -1], state)
            for n in range(len(written)):
                expected = whole(name, model, read[int(owners[n])], written[n])
                torch.testing.assert_close(logits[n], expected, atol=1e-8, rtol=1e-8)
            kept = torch.arange(len(written) // width)
            if step in (2, 4):
                kept = torch.randperm(len(kept), generator=generator)[1:]
            chosen = torch.randint(width, (len(kept), width), generator=generator)
            rows = (kept[:, None] * width + chosen).flatten()
            state.select(rows)
            owners = owners[rows]
            following = torch.randint(3, V, (len(rows), 1), generator=generator)
            written = torch.cat([written[rows], following], 1)
    assert len(state.first) == 2 * width


@pytest.mark.parametrize("name", [name for name in READERS if name in WRITERS])
def test_a_prompt_may_be_filled_up_on_either_side(name: str) -> None:
    model = built(name)
    right = together(sources(name, 3))
    assert right.documents is not None
    lengths = right.documents.sum(1)
    T = right.tokens.shape[1]
    order = (torch.arange(T) + lengths[:, None]) % T
    left = Batch(right.tokens.gather(1, order), documents=right.documents.gather(1, order))
    states = [model.prefill(batch) for batch in (right, left)]
    one, two = (model.decode_step(state.first, state) for state in states)
    torch.testing.assert_close(one, two)


@readers
def test_a_model_without_the_head_does_not_write(name: str) -> None:
    model = PAGES[name].build(HEADS, seed=0)
    assert not model.writes
    with pytest.raises(UnmaskError):
        model.prefill(sources(name, 1)[0])


@pages
def test_hidden_states_end_with_the_last_layer_or_are_refused(name: str) -> None:
    model = built(name, {} if name in READERS else None)
    batch = Batch(torch.from_numpy(np.stack(texts(6))))
    if name not in READERS:
        batch = replace(batch, source=sources(name, 1)[0])
    if model.transformer is None and not name.startswith("elmo"):
        with pytest.raises(UnmaskError, match="Only a Transformer or an ELMo has hidden states"):
            model.hidden_states(batch)
        return
    states = model.hidden_states(batch)
    layers = len(model.blocks) if model.transformer is None else len(model.transformer.order)
    assert len(states) == layers + 1
    last = model(batch)[..., -states[-1].shape[-1] :]
    torch.testing.assert_close(last, states[-1] if model.transformer is None else model.transformer.norm(states[-1]))

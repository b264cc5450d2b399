"""Every table: a model that is saved comes back whole, answers alike, and is saved again as the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from unmask import huggingface
from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.huggingface.config import table_of
from unmask.huggingface.table import as_heads
from unmask.models import Bert, ConvS2S, Transformer
from unmask.models.albert import Albert
from unmask.models.bert import Roberta
from unmask.models.captioner import Captioner
from unmask.models.cct import Cct
from unmask.models.cpc import Cpc
from unmask.models.deit import Deit
from unmask.models.ecg_cnn import EcgCnn
from unmask.models.electra import Electra
from unmask.models.elmo import Elmo
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.han import Han
from unmask.models.heads import kinds
from unmask.models.hubert import Hubert
from unmask.models.ib_bert import IbBert
from unmask.models.log_mel import LogMelEncoder
from unmask.models.mae import Mae
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.mina import Mina
from unmask.models.mobilebert import MobileBert
from unmask.models.modernbert import ModernBert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.resnet import ResNet
from unmask.models.seq2seq import Seq2Seq
from unmask.models.shared_recurrent import SharedRecurrent
from unmask.models.signal_cpc import SignalCpc
from unmask.models.signal_recurrent import SignalRecurrent
from unmask.models.signal_transformer import SignalTransformer
from unmask.models.swin import Swin
from unmask.models.t5 import T5
from unmask.models.transformer_xl import TransformerXl
from unmask.models.vector_decoder import VectorDecoder
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.models.wavenet import WaveNet
from unmask.nn import lora
from unmask.types import Batch, Head, Kind, Signal

V = 23
SIZES: dict[str, Any] = {"vocabulary": V, "dim": 8, "layers": 2, "heads": 2}
STACK: dict[str, Any] = {**SIZES, "hidden": 12, "length": 12}
SIDES: dict[str, Any] = {
    **{"vocabulary": V, "dim": 8, "encoder_layers": 1, "decoder_layers": 2, "encoder_heads": 2, "decoder_heads": 2},
    **{"encoder_hidden": 12, "decoder_hidden": 10},
}
TRANSFORMER = Transformer(**SIDES)
MARIAN = TRANSFORMER.replace(positions="halves")
SEQ2SEQ = Seq2Seq(vocabulary=V, dim=6, hidden=8)
CONVS2S = ConvS2S(vocabulary=V, dim=6, encoder_widths=(4, 6), decoder_widths=(6, 8), length=20)
FIVE = T5(vocabulary=V, dim=8, heads=2, head_dim=6, hidden=12, encoder_layers=2, decoder_layers=1)
VECTORS = VectorDecoder(vocabulary=V, features=4, dim=8, hidden=8, layers=2)
CAPTIONER = Captioner(**SIDES, positions="halves", size=8, patch=4, channels=2)
SPELLED: dict[str, Any] = {"characters": 4, "widths": (1, 2), "filters": (4, 4), "highways": 1, "task": 4}
CONFIGS: dict[str, Any] = {
    "BERT": Bert(**STACK),
    "RoBERTa": Roberta(**STACK),
    "ALBERT": Albert(**STACK, factor=6),
    "ELECTRA": Electra(**STACK),
    "MobileBERT": MobileBert(**SIZES, hidden=8, factor=2, bottleneck=4),
    "IB-BERT": IbBert(**SIZES, hidden=8, factor=2, bottleneck=16),
    "ModernBERT": ModernBert(**STACK, padding=0, local=4),
    "ModernBERT, untied": ModernBert(**STACK, padding=0, every=1, tied=False, norm_bias=True, attention_bias=True),
    "ModernBERT, without a bias": ModernBert(**STACK, padding=0, every=2, decoder_bias=False, pooling="mean"),
    "ELMo": Elmo(vocabulary=V, **SPELLED, dim=8, layers=2, hidden=16),
    "GPT": Gpt(**SIZES, length=12),
    "GPT-2": Gpt2(**SIZES, length=12),
    **{cell: RecurrentNetwork(vocabulary=V, dim=8, hidden=8, layers=2, cell=cell) for cell in ("rnn", "lstm", "gru")},
    "two tasks": SharedRecurrent(vocabulary=V, dim=8, hidden=8, bidirectional=False),
    "HAN": Han(vocabulary=V, dim=8, hidden=4, context=4),
    "LSTM, in pieces": RecurrentNetwork(vocabulary=V, dim=8, hidden=8, layers=1, tbptt=4),
    "Transformer-XL": TransformerXl(**SIZES, hidden=8, memory=4),
    "Marian": MARIAN,
    "Marian, its own numbers": MARIAN.replace(output_bias=True, length=30, std=0.1),
    "Marian, two vocabularies": MARIAN.replace(source_vocabulary=9),
    "Pegasus": MARIAN.replace(norm="pre", output_bias=True),
    "T5 1.0": FIVE,
    "T5 1.1": FIVE.replace(feedforward="gated-gelu", output="untied", length=30),
    "T5, tied": FIVE.replace(feedforward="gated-relu", output="tied"),
    "Transformer": TRANSFORMER,
    "Transformer, pre-norm": TRANSFORMER.replace(norm="pre", output_bias=True),
    "Transformer, pre-norm, two vocabularies": MARIAN.replace(norm="pre", source_vocabulary=9),
    "Transformer, other eps": MARIAN.replace(eps=1e-6, source_vocabulary=9, length=30),
    "Seq2Seq": SEQ2SEQ,
    "Seq2Seq, bottleneck": SEQ2SEQ.replace(
        attention="none", bidirectional=False, reverse=True, cell="gru", layers=2, tied=False
    ),
    "Seq2Seq, additive": SEQ2SEQ.replace(attention="additive", source_vocabulary=9),
    "ConvS2S": CONVS2S,
    "ConvS2S, tied": CONVS2S.replace(tied="all", pointwise=1),
    "ViT and Marian": CAPTIONER,
    "Captioner, pre-norm": CAPTIONER.replace(norm="pre"),
    **{f"vectors, {cell}": VECTORS.replace(cell=cell) for cell in ("rnn", "lstm", "gru")},
}
PICTURES: dict[str, Any] = {
    "ViT": Vit(size=8, patch=4, dim=8, layers=2, heads=2, hidden=12),
    "ViT, hidden patches": Vit(size=8, patch=4, dim=8, layers=1, heads=2, hidden=12, hides=True),
    "DeiT": Deit(size=8, patch=4, dim=8, layers=2, heads=2, hidden=12),
    "MAE": Mae(
        size=8, patch=4, dim=8, layers=1, heads=2, hidden=12,
        decoder_dim=8, decoder_layers=1, decoder_heads=2, decoder_hidden=12,
    ),
    "Swin": Swin(size=16, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=4),
    "Swin, hidden patches": Swin(
        size=16, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=4, hides=True, absolute=True
    ),
    "ResNet": ResNet(size=20, dim=4, widths=(4, 8), depths=(2, 1), halve_early=True, activation="silu"),
    "ResNet, small stem": ResNet(size=9, stem="small", dim=4, widths=(4, 8), depths=(2, 1), block="basic"),
    "CCT": Cct(size=8, dim=8, layers=2, heads=2, hidden=12, convolutions=2, kernel=5),
    "VGG": Vgg(size=8, widths=(4, 8), depths=(1, 3), norm=True, pointwise=True),
}  # fmt: skip
"""Pages that read pictures; their answers through files are in `tests/parity`."""
FRAMES: dict[str, Any] = {
    "channels": (6, 8), "kernels": (7, 3), "strides": (4, 2), "dim": 8, "layers": 2, "heads": 2, "hidden": 12,
    "position_kernel": 4, "position_groups": 2, "delay_dims": (6, 8), "delay_kernels": (3, 2),
    "delay_dilations": (1, 2),
}  # fmt: skip
STABLE: dict[str, Any] = {"pre_norm": True, "conv_norm": "layer", "conv_bias": True}
RECORDINGS: dict[str, Any] = {
    "wav2vec 2.0": Wav2Vec2(**FRAMES, codebooks=2, entries=3, codes=4, compared=5, feature_gradient=0.1),
    "wav2vec 2.0, pre-norm": Wav2Vec2(**FRAMES, **STABLE, mixes=True),
    "log-mel": LogMelEncoder(
        **{k: x for k, x in FRAMES.items() if k not in ("channels", "kernels", "strides")},
        rate=800,
        bands=6,
        stacked=3,
        mixes=True,
    ),
    "WaveNet": WaveNet(vocabulary=16, dim=6, skip=8, dilations=(1, 2), kernel=3),
    "CPC": Cpc(channels=(6, 8), kernels=(7, 3), strides=(4, 2), dim=12, layers=2, cell="lstm", conv_norm="none"),
    "cepstra": MfccCnn(widths=(6, 8), strides=(1, 2), kernel=3),
    "HuBERT": Hubert(**FRAMES, compared=6),
    "HuBERT, pre-norm": Hubert(**FRAMES, **STABLE, hides=False),
}
"""Pages that read recordings; as those of pictures."""
BANDS: dict[str, Any] = {"segment": 10, "kernel": 4, "filters": 4, "hidden": 3, "outputs": 5}
SIGNALS: dict[str, Any] = {
    "MINA": Mina(**BANDS, rate=250, leads=2),
    "MINA, attention to rhythm": Mina(**BANDS, attention="rhythm", low=(0.0,), high=(0.0,)),
    "MINA, convolutions alone": Mina(**BANDS, attention="none", recurrent=False, low=(1.0, 0.0), high=(0.0, 20.0)),
    "deep convolutions": EcgCnn(blocks=5, filters=3, doubled=2, kernel=4),
    "CPC of signals": SignalCpc(channels=(5, 6), strides=(5, 2), dim=8, layers=2, cell="lstm", leads=2),
    "Transformer of signals": SignalTransformer(segment=10, dim=8, layers=2, heads=2, hidden=12, leads=2),
    "LSTM of signals": SignalRecurrent(segment=10, dim=6, hidden=4, layers=3, leads=2),
    "GRU of signals": SignalRecurrent(segment=10, dim=6, hidden=4, cell="gru", bidirectional=False),
    "Transformer of signals, rotary": SignalTransformer(segment=10, dim=8, layers=2, heads=2, position="rotary"),
}
"""Pages that read signals; as those of pictures."""
OF_SIGNALS: dict[str, dict[str, Head]] = {
    "trunk": {},
    "classes": {"rhythms": Head("sequence", 3)},
    "segments": {"tagging": Head("token", 4)},
}
OF_RECORDINGS: dict[str, dict[str, Head]] = {
    "trunk": {},
    "classes": {"speech_classification": Head("sequence", 3)},
    "characters": {"ctc": Head("token", 9)},
    "speakers": {"verification": Head("embedding", 6), "speakers": Head("prototypes", 3)},
    "vectors": {"verification": Head("embedding", 6)},
    "clusters": {"clusters": Head("clusters", 4, pretraining=True)},
    "contrastive": {"contrastive": Head("quantised", 7, pretraining=True)},
}
OUTPUTS = {"mlm": 0, "next": 0, "nsp": 2, "sop": 2, "rtd": 1, "choice": 1, "regression": 1, "span": 2, "words": V}
"""Head -> its outputs; of the others, 3."""
USUAL = {"RoBERTa": as_heads({"mlm": 0}), "ELECTRA": as_heads({"rtd": 1})}
"""Heads of a folder, where it has not those that `build` gives by default."""
NOT_BY_PLACE = ("crf", "pairs", "words")  # heads that read more than the states at some places
PUBLISHED = (
    "BERT",
    "RoBERTa",
    "ALBERT",
    "ELECTRA",
    "MobileBERT",
    "ModernBERT",
    "GPT",
    "GPT-2",
    "Marian",
    "Pegasus",
    "T5",
    "ViT and",
)


def heads_of(config: Any) -> list[dict[str, Head] | None]:
    """No head, each head that a table has by itself, and the usual ones; of encoder–decoders, these alone."""
    table = table_of(config)
    if table.kind.heads:
        return [None]
    single = [as_heads({name: OUTPUTS.get(name, 3)}) for name in table.heads if name != "crf"]
    return [None, {}, *single, *([as_heads({"tagging": 3, "crf": 3})] if "crf" in table.heads else [])]


CASES = [
    pytest.param(
        config, USUAL.get(name) if heads is None else heads, id=f"{name}: {'usual' if heads is None else [*heads]}"
    )
    for name, config in CONFIGS.items()
    for heads in heads_of(config)
]


def batch_for(config: Any) -> Batch:
    """Two rows of three tokens, and where the model reads something else to write them, that."""
    tokens = torch.tensor([[1, 8, 9], [1, 10, 11]])
    if isinstance(config, VectorDecoder):
        return Batch(tokens, source=Batch.of_vectors(torch.arange(8.0).view(2, 4) / 8))
    if isinstance(config, Captioner):
        places = torch.tensor([1, 2, 3, 4, 6, 7, 8, 9])
        read = torch.tensor([[int(Kind.CLS), *[int(Kind.SIGNAL)] * 4]] * 2)
        return Batch(tokens, source=Batch(read, signal=Signal(places, torch.arange(256.0).view(8, 32) / 128 - 1)))
    if table_of(config).kind is huggingface.SINGLE_STACK:
        return Batch(tokens)
    documents = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    return Batch(tokens, source=Batch(torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]]), documents=documents))


def answers(model: Any, batch: Batch) -> list[torch.Tensor]:
    """Hidden states, and what every head makes of them."""
    with torch.no_grad():
        hidden = model.eval()(batch)
        places = torch.tensor([0, 3])
        return [
            hidden,
            *(model.answer(name, hidden, places, batch) for name in sorted(model.heads) if name not in NOT_BY_PLACE),
        ]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_table_has_a_case() -> None:
    own = [table for table in huggingface.TABLES.values() if table.config.__module__.startswith("unmask.")]
    tables = [one for table in own for one in (table, *table.variants)]
    written = [
        table_of(config) for config in (*CONFIGS.values(), *PICTURES.values(), *RECORDINGS.values(), *SIGNALS.values())
    ]
    assert not [table.model_type for table in tables if not any(table is one for one in written)]


@pytest.mark.parametrize(("config", "heads"), CASES)
def test_a_folder_brings_back_the_same_model(config: Any, heads: dict[str, int] | None, tmp_path: Path) -> None:
    model = config.build(heads, seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)  # so that no parameter is where it starts
    words = [str(i) for i in range(V)] if "words" in model.heads else []
    huggingface.save(tmp_path / "a", model.train(), words=words)
    loaded = huggingface.load(tmp_path / "a")
    assert not loaded.model.training
    assert loaded.model.config == config
    assert type(loaded.model) is type(model)
    assert set(loaded.model.heads) == set(model.heads)
    assert (loaded.tokenizer, loaded.notice, dict(loaded.settings), list(loaded.words)) == (None, "", {}, words)
    a, b = model.state_dict(), loaded.model.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert loaded.model.parameters_total == model.parameters_total  # what was tied is tied
    for one, other in zip(answers(loaded.model, batch_for(config)), answers(model, batch_for(config)), strict=True):
        assert torch.equal(one, other)
    huggingface.save(tmp_path / "b", loaded.model, labels=loaded.labels, words=loaded.words)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("heads", [{}, {"image_classification": Head("sequence", 3)}], ids=["trunk", "classes"])
@pytest.mark.parametrize("name", PICTURES)
def test_a_folder_of_a_picture_model_brings_back_the_same_model(name: str, heads: Any, tmp_path: Path) -> None:
    model = PICTURES[name].build(heads, seed=3)
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.add_(1)  # such as running statistics, which a folder must keep too
    huggingface.save(tmp_path / "a", model)
    loaded = huggingface.load(tmp_path / "a")
    # An MAE with classes is stored as a ViT, and classes need no vector for masked patches.
    expected = PICTURES[name].in_folder(heads)
    assert (loaded.model.config, type(loaded.model)) == (expected, type(expected.build(heads)))
    a, b = model.state_dict(), loaded.model.state_dict()
    assert b.keys() == expected.build(heads).state_dict().keys()
    assert all(torch.equal(a[key], b[key]) for key in b)
    huggingface.save(tmp_path / "b", loaded.model, labels=loaded.labels)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("heads", OF_RECORDINGS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_folder_of_a_model_of_recordings_brings_back_the_same_model(name: str, heads: str, tmp_path: Path) -> None:
    asked = OF_RECORDINGS[heads]
    if {head.kind for head in asked.values()} - set(kinds(RECORDINGS[name])):
        pytest.skip(f"{name} has no {heads}")
    comes_back(RECORDINGS[name], asked, tmp_path)


@pytest.mark.parametrize("heads", OF_SIGNALS)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_folder_of_a_model_of_signals_brings_back_the_same_model(name: str, heads: str, tmp_path: Path) -> None:
    comes_back(SIGNALS[name], OF_SIGNALS[heads], tmp_path)


def comes_back(config: Any, asked: dict[str, Head], tmp_path: Path) -> None:
    model = config.build(asked, seed=3)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in model.state_dict():
                buffer.add_(1)  # such as running statistics
    huggingface.save(tmp_path / "a", model)
    loaded = huggingface.load(tmp_path / "a")
    assert loaded.model.config == config.in_folder(asked)  # with the numbers of outputs
    assert set(loaded.model.heads) == set(asked)
    a, b = model.state_dict(), loaded.model.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    huggingface.save(tmp_path / "b", loaded.model, labels=loaded.labels)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_is_what_its_kind_says(name: str, tmp_path: Path) -> None:
    """Whoever wants another kind of model is told what to do with this one."""
    config, kinds = CONFIGS[name], {huggingface.SINGLE_STACK, huggingface.ENCODER_DECODER}
    huggingface.save(tmp_path, config.build(USUAL.get(name)))
    own = table_of(config).kind
    (other,) = kinds - {own}
    assert huggingface.holds_encoder_decoder(tmp_path) == (own is huggingface.ENCODER_DECODER)
    loaded = huggingface.load(tmp_path, own)
    assert loaded.kind is own
    assert huggingface.opened(loaded, own) is loaded
    for refused in (tmp_path, loaded):
        with pytest.raises(UnmaskError, match=r"encoder–decoder is required|use `unmask translate`"):
            huggingface.opened(refused, other)


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_opens_what_it_has(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    huggingface.save(tmp_path, CONFIGS[name].build(USUAL.get(name)))
    said = huggingface.only_here(CONFIGS[name])
    assert bool(said) == (not name.startswith(PUBLISHED))
    if said:
        assert said.startswith("transformers has no model with ")
        assert said.endswith(": only unmask can open the folder.")
        with pytest.raises(ValueError, match="unmask-"):
            transformers.AutoConfig.from_pretrained(tmp_path)
    else:
        found = transformers.AutoConfig.from_pretrained(tmp_path).model_type
        assert found == table_of(CONFIGS[name]).model_type


def test_only_here_names_every_reason() -> None:
    assert "no model with positions = 'interleaved' and eps = 1e-06:" in huggingface.only_here(
        TRANSFORMER.replace(norm="pre", eps=1e-6)
    )
    assert "no model with source_vocabulary = 9:" in huggingface.only_here(
        CONFIGS["Transformer, pre-norm, two vocabularies"]
    )
    assert "the wiring of Seq2Seq" in huggingface.only_here(SEQ2SEQ)


@pytest.mark.parametrize(
    ("positions", "named"),
    [
        ({"rope_type": "default", "rope_theta": 5e5}, "has rope_theta, rope_type, and only full_attention and"),
        ({"full_attention": {"rope_theta": 1e4}, "other": {}}, "has other, and"),
        (7, "has 7, and"),
    ],
)
def test_rotary_positions_of_another_form_are_refused(positions: Any, named: str, tmp_path: Path) -> None:
    huggingface.save(tmp_path / "m", CONFIGS["ModernBERT"].build())
    place = tmp_path / "m" / "config.json"
    place.write_text(json.dumps({**read_json(place), "rope_parameters": positions}))
    (tmp_path / "m" / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match=f"config.json: rope_parameters {named}"):
        huggingface.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["BERT", "Marian", "T5 1.0", "Transformer"])
def test_adapters_are_folded_in_before_a_model_is_saved(name: str, tmp_path: Path) -> None:
    model = CONFIGS[name].build()
    lora.adapt(model, ["query"], rank=2)
    with pytest.raises(UnmaskError, match="has adapters"):
        huggingface.save(tmp_path / "folder", model)
    assert not (tmp_path / "folder").exists()


OPENED_THERE = {
    name: config
    for name, config in {**CONFIGS, **PICTURES, **RECORDINGS}.items()
    if not huggingface.only_here(config) and not (name in RECORDINGS and RECORDINGS[name].mixes)
}
TASKS_THERE = {"classification": 3}, {"tagging": 4}, {"image_classification": 3}, {"ctc": 5}


@pytest.mark.parametrize("name", OPENED_THERE)
def test_what_transformers_saves_again_comes_back(name: str, tmp_path: Path) -> None:
    """`from_pretrained`, then `save_pretrained`, of the folder of every system that it has, by the class in it."""
    transformers = pytest.importorskip("transformers")
    config, kind = OPENED_THERE[name], set(kinds(OPENED_THERE[name]))
    known = [as_heads(one) for one in TASKS_THERE if set(table_of(config).heads) >= one.keys()]
    heads = [*([] if name in PICTURES else [USUAL.get(name)]), *known]  # a ViTModel adds a pooler to a trunk
    tried = 0
    for number, asked in enumerate(heads):
        if asked is not None and not {head.kind for head in asked.values()} <= kind:
            continue
        model = config.build(asked, seed=3)
        ours, theirs = tmp_path / f"ours{number}", tmp_path / f"theirs{number}"
        huggingface.save(ours, model)
        classes = read_json(ours / "config.json")["architectures"]
        if not classes:
            continue
        getattr(transformers, classes[0]).from_pretrained(ours).save_pretrained(theirs)
        a, b = huggingface.load(ours).model.state_dict(), huggingface.load(theirs).model.state_dict()
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
        tried += 1
    assert tried

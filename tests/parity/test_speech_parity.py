"""wav2vec 2.0 and HuBERT against `transformers`: features, hidden states, logits, losses, gradients, folders in both
directions, padded batches."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask import huggingface
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.huggingface.folder import export
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.types import Batch, Head, Kind

transformers = pytest.importorskip("transformers")

SMALL = {
    "conv_dim": [6, 8, 10], "conv_kernel": [7, 3, 2], "conv_stride": [4, 2, 2], "hidden_size": 24,
    "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 3, "layerdrop": 0.0, "vocab_size": 7, "classifier_proj_size": 9,
}  # fmt: skip
QUANTISER = {"num_codevectors_per_group": 5, "num_codevector_groups": 2, "codevector_dim": 6, "proj_codevector_dim": 4}
DELAYS = {"tdnn_dim": [8, 6, 10], "tdnn_kernel": [3, 2, 1], "tdnn_dilation": [1, 2, 1], "xvector_output_dim": 11}
LAYOUTS = {
    "post-norm": {},
    "pre-norm": {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True},
    "mixed": {"do_stable_layer_norm": True, "num_conv_pos_embeddings": 5, "conv_kernel": [5, 5, 1]},
    "activations": {
        "feat_extract_activation": "relu", "hidden_act": "silu", "layer_norm_eps": 1e-3, "feat_extract_norm": "layer"
    },
}  # fmt: skip
FAMILIES = {"Wav2Vec2": QUANTISER | DELAYS, "Hubert": {}}
layouts = pytest.mark.parametrize("layout", LAYOUTS)
families = pytest.mark.parametrize("family", FAMILIES)


def theirs(family: str, kind: str, layout: str = "post-norm", **changes: Any) -> nn.Module:
    labels = {} if kind in ("Model", "ForCTC") else {"id2label": dict(enumerate("abcde"))}
    config = getattr(transformers, f"{family}Config")(**(labels | SMALL | FAMILIES[family] | LAYOUTS[layout] | changes))
    config._attn_implementation = "eager"
    model = getattr(transformers, family + kind)(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4, generator=generator)
    return model.double().eval()


def opened(model: nn.Module, folder: Path) -> Any:
    """Our model, from the folder that theirs wrote."""
    model.float().save_pretrained(folder)
    model.double()
    return huggingface.load(folder).model.double()


def reopened(ours: Any, kind: type, folder: Path, **given: Any) -> Any:
    """Their model, from the folder that ours wrote: nothing is missing, nothing is too much."""
    huggingface.save(folder, ours.float(), **given)
    ours.double()
    again, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return again.double().eval()


def recordings(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(n).astype(np.float32).astype(np.float64) for n in lengths]


def batch_of(ours: Any, samples: list[np.ndarray]) -> Batch:
    processor = RecordingProcessor(normalise=False).for_model(ours.config)
    batch = processor.collate([processor.example(one) for one in samples])
    dtype = next(ours.parameters()).dtype
    return batch.map(lambda x: x.to(dtype) if x.is_floating_point() else x)


def padded(samples: list[np.ndarray]) -> dict[str, Tensor]:
    """What they read: samples that are filled up with zeros, and a mask."""
    longest = max(map(len, samples))
    rows = [F.pad(torch.from_numpy(one), (0, longest - len(one))) for one in samples]
    mask = torch.arange(longest) < torch.tensor([[len(one)] for one in samples])
    return {"input_values": torch.stack(rows), "attention_mask": mask.long()}


def close(found: Tensor, expected: Tensor) -> None:
    single = torch.float32 in (found.dtype, expected.dtype)  # parts of the reference compute in float32, as ours do
    torch.testing.assert_close(
        found, expected, atol=2e-5 if single else 1e-8, rtol=1e-4 if single else 1e-7, check_dtype=False
    )


def same_gradients(ours: Any, model: nn.Module, tolerance: float = 1e-7) -> None:
    """Every gradient of the two, by the names of the folder."""
    twin = copy.deepcopy(ours)
    with torch.no_grad():
        for (name, parameter), other in zip(ours.named_parameters(), twin.parameters(), strict=True):
            other.copy_(torch.zeros(()) if parameter.grad is None else parameter.grad)
            assert parameter.grad is not None or ours.config.mixes, name  # a mean of all layers has no last norm
    found = export(twin)
    wanted = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert wanted.keys() <= found.keys()
    for name, gradient in wanted.items():
        scale = gradient.abs().max().clamp(min=1e-3)
        assert (found[name] - gradient).abs().max() <= tolerance * scale, name


@layouts
@families
def test_hidden_states_features_and_gradients(family, layout, tmp_path):
    model = theirs(family, "Model", layout, layerdrop=0.2)
    ours = opened(model, tmp_path / "theirs")
    (samples,) = recordings(423)
    batch = batch_of(ours, [samples])
    expected = model(torch.from_numpy(samples)[None], output_hidden_states=True)
    hidden, frames, features = ours.forward_with_frames(batch)
    close(hidden, expected.last_hidden_state)
    if family == "Wav2Vec2":
        close(frames, expected.extract_features)
    close(features.mT, model.feature_extractor(torch.from_numpy(samples)[None]))
    for one, other in zip(ours.hidden_states(batch)[:-1], expected.hidden_states[:-1], strict=True):
        close(one, other)
    hidden.square().sum().backward()
    expected.last_hidden_state.square().sum().backward()
    ours.embedding.mask.grad = torch.zeros_like(ours.embedding.mask)
    same_gradients(ours, model)
    again = reopened(ours, type(model), tmp_path / "ours")
    with torch.no_grad():
        close(again(torch.from_numpy(samples)[None]).last_hidden_state, expected.last_hidden_state)


@pytest.mark.parametrize("layout", ["pre-norm", "activations"])
@families
def test_padded_batches_with_norms_of_places(family, layout, tmp_path):
    model = theirs(family, "Model", layout)
    ours, samples = opened(model, tmp_path), recordings(423, 77, 300)
    batch = batch_of(ours, samples)
    with torch.no_grad():
        expected, found = model(**padded(samples)).last_hidden_state, ours(batch)
    assert found.shape == expected.shape
    for row, real in enumerate(batch.documents > 0):
        close(found[row, real], expected[row, real])


@families
def test_the_reference_reads_padding_where_it_normalises_over_time(family, tmp_path):
    """Group norm: a recording alone and the same one padded are two answers there, and one here."""
    model = theirs(family, "Model")
    ours, samples = opened(model, tmp_path), recordings(423, 200)
    with torch.no_grad():
        alone = model(torch.from_numpy(samples[1])[None]).last_hidden_state[0]
        among = model(**padded(samples)).last_hidden_state[1, : len(alone)]
        found = ours(batch_of(ours, samples))[1, : len(alone)]
    assert (among - alone).abs().max() > 0.01
    close(found, alone)


@layouts
@families
def test_masked_frames_in_training(family, layout, tmp_path, fading):
    """Every dropout has the same place and rate: a site that makes numbers smaller stands in for it."""
    rates = {
        name: 0.1 + 0.1 * i for i, name in enumerate(("hidden_dropout", "activation_dropout", "feat_proj_dropout"))
    }
    model = theirs(family, "Model", layout, **rates, attention_dropout=0.0).train()
    ours = opened(model, tmp_path).train()
    (samples,) = recordings(300)
    batch = batch_of(ours, [samples])
    masked = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    masked[0, 2:6] = masked[0, 9] = True
    expected = model(torch.from_numpy(samples)[None], mask_time_indices=masked).last_hidden_state
    hidden = ours(replace(batch, tokens=batch.tokens.masked_fill(masked, int(Kind.MASK))))
    close(hidden, expected)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    same_gradients(ours, model)


@families
def test_characters_and_the_loss_of_ctc(family, tmp_path, fading):
    model = theirs(family, "ForCTC", pad_token_id=3, final_dropout=0.3, attention_dropout=0.0, apply_spec_augment=False)
    ours = opened(model, tmp_path / "theirs").train()
    model.train()
    (samples,) = recordings(423)
    labels = torch.tensor([[1, 1, 5, 2]])
    expected = model(torch.from_numpy(samples)[None], labels=labels)
    batch = batch_of(ours, [samples])
    logits = ours.answer("ctc", ours(batch), torch.arange(batch.tokens.numel()), batch)
    close(logits, expected.logits[0])
    log_p = logits.float().log_softmax(-1)  # as theirs
    loss = F.ctc_loss(log_p[:, None], labels, [len(log_p)], [4], blank=ours.config.padding, reduction="sum")
    close(loss, expected.loss)
    loss.backward()
    expected.loss.backward()
    ours.embedding.mask.grad = torch.zeros_like(ours.embedding.mask)
    same_gradients(ours, model, 1e-5)
    again = reopened(ours, type(model), tmp_path / "ours")
    assert again.config.pad_token_id == 3
    with torch.no_grad():
        close(again(torch.from_numpy(samples)[None]).logits, model.eval()(torch.from_numpy(samples)[None]).logits)


@pytest.mark.parametrize("mixes", [False, True])
@layouts
@families
def test_classes_of_recordings(family, layout, mixes, tmp_path):
    model = theirs(family, "ForSequenceClassification", layout, use_weighted_layer_sum=mixes)
    ours = opened(model, tmp_path / "theirs")
    assert ours.config.mixes == mixes
    samples = recordings(423, 130)
    batch = batch_of(ours, samples)
    logits = ours.answer("speech_classification", ours(batch), batch.starts, batch)
    expected = torch.cat([model(torch.from_numpy(one)[None]).logits for one in samples])
    close(logits, expected)
    labels = torch.tensor([3, 1])
    F.cross_entropy(logits, labels).backward()
    F.cross_entropy(expected, labels).backward()
    ours.embedding.mask.grad = torch.zeros_like(ours.embedding.mask)
    same_gradients(ours, model)
    again = reopened(ours, type(model), tmp_path / "ours", labels=list("abcde"))
    with torch.no_grad():
        close(again(torch.from_numpy(samples[0])[None]).logits, expected[:1])


@pytest.mark.parametrize("mixes", [False, True])
def test_x_vectors_and_additive_margins(mixes, tmp_path):
    model = theirs("Wav2Vec2", "ForXVector", use_weighted_layer_sum=mixes)
    ours = opened(model, tmp_path / "theirs")
    samples, labels = recordings(423, 130), torch.tensor([3, 1])
    batch = batch_of(ours, samples)
    vectors = ours.answer("verification", ours(batch), batch.starts, batch)
    found = [model(torch.from_numpy(one)[None], labels=labels[i : i + 1]) for i, one in enumerate(samples)]
    close(vectors, torch.cat([one.embeddings for one in found]))
    cosines = ours.heads["speakers"](vectors)
    loss = F.cross_entropy(30 * (cosines - 0.4 * F.one_hot(labels, 5)), labels, reduction="sum")
    close(loss, found[0].loss + found[1].loss)
    loss.backward()
    (found[0].loss + found[1].loss).backward()
    ours.embedding.mask.grad = torch.zeros_like(ours.embedding.mask)
    same_gradients(ours, model)
    again = reopened(ours, type(model), tmp_path / "ours", labels=list("abcde"))
    with torch.no_grad():
        close(again(torch.from_numpy(samples[0])[None]).embeddings, vectors[:1])


@pytest.mark.parametrize("layout", ["post-norm", "pre-norm"])
def test_quantised_frames_of_pre_training(layout, tmp_path):
    model = theirs("Wav2Vec2", "ForPreTraining", layout)
    ours = opened(model, tmp_path / "theirs").float()
    model.float()
    samples = recordings(423)[0].astype(np.float32)
    batch = batch_of(ours, [samples])
    masked = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    masked[0, 2:6] = masked[0, 9] = True
    expected = model(torch.from_numpy(samples)[None], mask_time_indices=masked)
    hidden, frames, _ = ours.forward_with_frames(replace(batch, tokens=batch.tokens.masked_fill(masked, Kind.MASK)))
    everywhere = torch.arange(batch.tokens.numel())
    close(ours.answer("contrastive", hidden, everywhere), expected.projected_states[0])
    close(ours.heads["contrastive"].quantise(frames[0]).vectors, expected.projected_quantized_states[0])
    again = reopened(ours, type(model), tmp_path / "ours").float()
    with torch.no_grad():
        other = again(torch.from_numpy(samples)[None], mask_time_indices=masked)
    close(other.projected_states, expected.projected_states)


def test_a_fresh_pre_training_of_hubert_opens_as_its_trunk(tmp_path):
    """`transformers` has no class for it; the head is stored beside the trunk."""
    page = Hubert(channels=(6, 8), kernels=(7, 3), strides=(4, 2), dim=24, layers=2, heads=3, hidden=40,
                  position_kernel=6, position_groups=3, compared=5)  # fmt: skip
    model = page.build({"clusters": Head("clusters", 9, pretraining=True)}, seed=1).eval()
    huggingface.save(tmp_path, model, RecordingProcessor())
    loaded = huggingface.load(tmp_path)
    assert loaded.model.config == page
    assert loaded.processor == RecordingProcessor().for_model(page)
    (samples,) = recordings(300)
    batch = batch_of(model, [samples])
    with torch.no_grad():
        hidden = model(batch)
        assert torch.equal(loaded.model(batch), hidden)
        places = torch.arange(4)
        assert torch.equal(loaded.model.answer("clusters", hidden, places), model.answer("clusters", hidden, places))
        again = transformers.HubertModel.from_pretrained(tmp_path)
        torch.testing.assert_close(again(torch.from_numpy(samples).float()[None]).last_hidden_state, hidden)


@families
def test_folders_of_older_versions(family, tmp_path):
    """Published folders name the two parts of weight norm otherwise."""
    from safetensors.torch import load_file, save_file

    model = theirs(family, "Model").float()
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    old = {"original0": "weight_g", "original1": "weight_v"}
    renamed = {
        name.replace("parametrizations.weight.", "").replace(last := name.rpartition(".")[2], old.get(last, last)): x
        for name, x in tensors.items()
    }
    assert {"weight_g", "weight_v"} <= {name.rpartition(".")[2] for name in renamed}
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    ours = huggingface.load(tmp_path).model
    samples = recordings(300)[0].astype(np.float32)
    with torch.no_grad():
        close(ours(batch_of(ours, [samples])), model(torch.from_numpy(samples)[None]).last_hidden_state)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("Hubert", {"conv_pos_batch_norm": True}, "conv_pos_batch_norm = True is not supported"),
        ("Hubert", {"feat_proj_layer_norm": False}, "feat_proj_layer_norm = False is not supported"),
        ("Wav2Vec2", {"add_adapter": True}, "add_adapter = True is not supported"),
        ("Wav2Vec2", {"adapter_attn_dim": 4, "do_stable_layer_norm": True}, "adapter_attn_dim = 4 is not supported"),
    ],
)
def test_parts_that_unmask_does_not_have_are_refused(family, changes, message, tmp_path):
    theirs(family, "Model", **changes).save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match=message):
        huggingface.load(tmp_path)


def test_no_vector_for_masked_frames(tmp_path):
    model = theirs("Wav2Vec2", "Model", mask_time_prob=0.0)
    ours = opened(model, tmp_path / "theirs")
    assert not ours.config.hides
    reopened(ours, type(model), tmp_path / "ours")


def test_the_default_sizes_are_theirs():
    with torch.device("meta"):
        for page, config, kind in (
            (Wav2Vec2(), transformers.Wav2Vec2Config(), transformers.Wav2Vec2Model),
            (Hubert(), transformers.HubertConfig(), transformers.HubertModel),
        ):
            assert page.build(seed=None).parameters_total == sum(p.numel() for p in kind(config).parameters())

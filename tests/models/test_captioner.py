"""Captioner: equal to VisionEncoderDecoderModel, in both directions; its captions depend on the picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.bitext.batching import collate_pairs
from unmask.data.pictures import compositions
from unmask.data.pictures.captions import Captions
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate
from unmask.models.captioner import Captioner
from unmask.objectives import NextToken
from unmask.runs.translation import origin, systems
from unmask.types import Batch

SIZES = {"dim": 32, "size": 84, "patch": 28, "channels": 1, "dropout": 0.0, "positions": "halves"}
LAYERS = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("heads", 4))}


@pytest.fixture(scope="module")
def pairs():
    return compositions.pairs(6, seed=1)


def tokenizer_of(pairs) -> Captions:
    return origin.learned(systems.find("captioner"), pairs)


def config_of(tokenizer, **changes) -> Captioner:
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}
    return Captioner(**ids).replace(**SIZES, **LAYERS, encoder_hidden=48, decoder_hidden=40).replace(**changes)


def batch_of(tokenizer, pairs) -> Batch:
    read, written = tokenizer.ids(pairs.sources), tokenizer.target.ids(pairs.targets)
    return collate_pairs(read, written, tokenizer.pad, tokenizer.start, tokenizer.end)


def logits(model, batch):
    with torch.no_grad():
        hidden_BTD = model(batch)
        return model.heads["next"](hidden_BTD.flatten(0, 1)).unflatten(0, hidden_BTD.shape[:2])


def pixels(tokenizer, pairs):
    return torch.from_numpy(np.stack([tokenizer.images.pixels(one.read()) for one in tokenizer.ids(pairs.sources)]))


def test_transformers_opens_its_folder_with_the_same_logits_and_captions(tmp_path, pairs):
    transformers = pytest.importorskip("transformers")
    tokenizer = tokenizer_of(pairs)
    model = config_of(tokenizer, dim=64).build(seed=3).eval()
    search = Search(beam_size=1, limits=Limits(max_length=9))
    huggingface.save(tmp_path / "c", model, tokenizer, settings={"search": search.to_dict()})
    theirs = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "c").eval()
    batch = batch_of(tokenizer, pairs)
    with torch.no_grad():
        found = theirs(pixel_values=pixels(tokenizer, pairs), decoder_input_ids=batch.tokens).logits
        written = theirs.generate(pixel_values=pixels(tokenizer, pairs))
    torch.testing.assert_close(logits(model, batch), found, atol=2e-5, rtol=1e-4)
    ours = [one[0].tokens for one in generate(model, batch.source, search, end=tokenizer.end)]
    for row, tokens in zip(written.tolist(), ours, strict=True):
        assert [t for t in row[1:] if t not in (tokenizer.pad, tokenizer.end)] == tokens
    again = huggingface.load(tmp_path / "c").model
    torch.testing.assert_close(logits(again, batch), logits(model, batch), atol=0, rtol=0)


def test_a_folder_of_transformers_is_read(tmp_path, pairs):
    transformers = pytest.importorskip("transformers")
    tokenizer = tokenizer_of(pairs)
    huggingface.save(tmp_path / "c", config_of(tokenizer).build(seed=0), tokenizer)
    vit = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, image_size=84, patch_size=28,
        num_channels=1,
    )  # fmt: skip
    marian = transformers.MarianConfig(
        vocab_size=tokenizer.size, d_model=32, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=40,
        is_decoder=True, add_cross_attention=True, is_encoder_decoder=False, pad_token_id=tokenizer.pad,
        eos_token_id=tokenizer.end, decoder_start_token_id=tokenizer.start, dropout=0.0,
    )  # fmt: skip
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        vit, marian, pad_token_id=tokenizer.pad, eos_token_id=tokenizer.end, decoder_start_token_id=tokenizer.start
    )
    torch.manual_seed(0)
    theirs = transformers.VisionEncoderDecoderModel(both).eval()
    theirs.save_pretrained(tmp_path / "t")
    ours, batch = huggingface.load(tmp_path / "t").model, batch_of(tokenizer, pairs)
    with torch.no_grad():
        found = theirs(pixel_values=pixels(tokenizer, pairs), decoder_input_ids=batch.tokens).logits
    torch.testing.assert_close(logits(ours, batch), found, atol=2e-5, rtol=1e-4)


def test_norms_before_the_sub_layers_have_a_folder_of_their_own(tmp_path, pairs):
    tokenizer = tokenizer_of(pairs)
    model = config_of(tokenizer, norm="pre").build(seed=0).eval()
    huggingface.save(tmp_path / "c", model, tokenizer)
    batch = batch_of(tokenizer, pairs)
    loaded = huggingface.load(tmp_path / "c")
    assert loaded.model.config == model.config
    torch.testing.assert_close(logits(loaded.model, batch), logits(model, batch), atol=0, rtol=0)
    assert "transformers has no model" in huggingface.only_here(model.config)


def test_other_encoders_are_refused(tmp_path, pairs):
    tokenizer = tokenizer_of(pairs)
    huggingface.save(tmp_path / "c", config_of(tokenizer).build(seed=0), tokenizer)
    config = tmp_path / "c" / "config.json"
    (tmp_path / "c" / "manifest.json").unlink()
    config.write_text(config.read_text().replace('"model_type": "vit"', '"model_type": "swin"'))
    with pytest.raises(UnmaskError, match="the encoder must be the config of a vit"):
        huggingface.load(tmp_path / "c")


def test_it_learns_a_caption_for_each_picture(pairs):
    """One caption for all pictures is the fault to exclude."""
    tokenizer = tokenizer_of(pairs)
    model, batch = config_of(tokenizer, norm="pre").build(seed=0), batch_of(tokenizer, pairs)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(90):
        loss = NextToken().loss(model, batch)["next"]
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        optimizer.step()
    found = generate(model.eval(), batch.source, Search(limits=Limits(max_length=20)), end=tokenizer.end)
    assert [tokenizer.target.decode(one[0].tokens) for one in found] == pairs.targets
    assert len(set(pairs.targets)) == len(pairs)
    swapped = Batch(batch.tokens, documents=batch.documents, source=batch.source.take(np.array([1, 0, 2, 3, 4, 5])))
    assert not torch.allclose(logits(model, swapped)[0], logits(model, batch)[0], atol=1e-2)


def test_patches_must_divide_the_picture():
    with pytest.raises(UnmaskError, match="cannot be cut into patches"):
        Captioner(size=84, patch=16)

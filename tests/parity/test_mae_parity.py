"""MAE against `transformers`: encoder states, reconstructions, loss, gradients, folders in both directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.mae import Grid, Mae
from unmask.objectives.masked_autoencoder import MaskedAutoencoder
from unmask.types import Batch, Head, Kind, Signal

transformers = pytest.importorskip("transformers")
modeling_vit_mae = pytest.importorskip("transformers.models.vit_mae.modeling_vit_mae")
SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 20,
}
SHAPES = pytest.mark.parametrize(("size", "patch", "channels"), [(12, 4, 3), (10, 2, 1), (9, 3, 3)])


def theirs(size: int, patch: int, channels: int, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"image_size": size, "patch_size": patch, "num_channels": channels}
    model = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**(SMALL | sizes | changes)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def whole(config: Mae, pixels: torch.Tensor) -> Batch:
    processor = ImageProcessor(size=config.size, patch=config.patch, mean=(0.5,) * config.channels)
    processor = replace(processor, std=processor.mean).for_model(config)
    return collate.pad([processor.patches(one.numpy()) for one in pixels], Kind.PADDING, multiple=1)


def visible(batch: Batch, kept_BK: torch.Tensor) -> Batch:
    """The batch with these patches of each picture alone, in ascending order."""
    B, K = kept_BK.shape
    values = batch.signal.values.unflatten(0, (B, -1))
    kept = values.gather(1, kept_BK[..., None].expand(-1, -1, values.shape[-1])).flatten(0, 1)
    tokens = torch.cat([batch.tokens[:, :1], batch.tokens[:, 1 : K + 1]], 1)
    places = (torch.arange(B)[:, None] * (K + 1) + torch.arange(1, K + 1)).flatten()
    positions = torch.cat([torch.zeros(B, 1, dtype=torch.int64), kept_BK + 1], 1)
    return Batch(tokens, positions=positions, signal=Signal(places, kept))


@SHAPES
@pytest.mark.parametrize("rate", [0.75, 0.4])
def test_states_reconstructions_gradients_and_folders(size, patch, channels, rate, tmp_path):
    model = theirs(size, patch, channels, mask_ratio=rate)
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model.eval()
    assert (ours.config.rate, set(ours.heads)) == (rate, {"pixels"})
    pixels, N = torch.randn(3, channels, size, size), ours.config.grid**2
    noise = torch.rand(3, N)
    K = int(N * (1 - rate))
    order = noise.argsort(1)[:, :K]
    batch = visible(whole(ours.config, pixels), order.sort(1).values)
    hidden = ours(batch)
    expected = model.vit(pixels, noise=noise).last_hidden_state
    back = torch.cat([torch.zeros(3, 1, dtype=torch.int64), order.argsort(1) + 1], 1)
    torch.testing.assert_close(hidden, expected.gather(1, back[..., None].expand_as(expected)), atol=2e-5, rtol=1e-4)

    answer = ours.answer("pixels", hidden, torch.arange(3) * (K + 1), batch)[:, 1:]
    given = model(pixels, noise=noise)
    there = model.unpatchify(given.logits)
    torch.testing.assert_close(
        answer.flatten(0, 1), whole(ours.config, there.detach()).signal.values, atol=1e-4, rtol=1e-3
    )

    given.logits.square().sum().backward()
    answer.square().sum().backward()
    assert not [name for name, p in ours.named_parameters() if p.requires_grad and p.grad is None]
    grads = {name: p.grad for name, p in model.named_parameters()}
    mine = {name: p.grad for name, p in ours.named_parameters()}
    scale = grads["vit.embeddings.patch_embeddings.projection.weight"].abs().max()
    for name, other in (
        ("embedding.token.signal.project.weight", "vit.embeddings.patch_embeddings.projection.weight"),
        ("embedding.token.kinds.CLS", "vit.embeddings.cls_token"),
        ("heads.pixels.hidden", "decoder.mask_token"),
        ("heads.pixels.project.weight", "decoder.decoder_embed.weight"),
    ):
        torch.testing.assert_close(
            mine[name], grads[other].reshape(mine[name].shape), atol=1e-4 * float(scale), rtol=1e-3
        )
    fixed = {name for name, p in ours.named_parameters() if not p.requires_grad}
    assert fixed == {"embedding.position.table.weight", "heads.pixels.position.table.weight"}

    huggingface.save(tmp_path / "ours", ours)
    again, report = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("size", "patch", "channels", "rate"), [(12, 4, 3, 0.75), (10, 2, 1, 0.3)])
def test_the_loss_and_the_parts_of_each_picture(size, patch, channels, rate, normalised, tmp_path):
    model = theirs(size, patch, channels, mask_ratio=rate, norm_pix_loss=normalised)
    model.save_pretrained(tmp_path)
    ours = huggingface.load(tmp_path).model.eval()
    batch = whole(ours.config, pixels := torch.randn(3, channels, size, size))
    processor = ImageProcessor(size=size, patch=patch, mean=(0.5,) * channels, std=(0.5,) * channels)
    objective = MaskedAutoencoder(processor, rate=rate, normalised=ours.config.normalised)
    short, N = objective.corrupt(batch, np.random.default_rng(1)), (size // patch) ** 2
    noise = torch.ones(3, N).scatter(1, short.positions[:, 1:] - 1, 0.0)
    expected = model(pixels, noise=noise)
    assert torch.equal(expected.mask, noise)  # the same patches are hidden, and as many
    parts = torch.cat([short.signal.values.unflatten(0, (3, -1)), short.targets["pixels"].values], 1)
    assert parts.shape[1] == N
    loss = objective.score(ours, ours(short), short)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, atol=1e-5, rtol=1e-4)


def test_fixed_positions_are_those_of_the_reference():
    made = modeling_vit_mae.build_2d_sinusoidal_position_embedding(3, 3, 24, cls_token=True)
    torch.testing.assert_close(Grid(3, 24).table.weight, torch.cat([made[:, 12:], made[:, :12]], 1))


def test_a_fresh_model_opens_there(tmp_path):
    page = Mae(size=8, patch=4, dim=24, layers=2, heads=3, hidden=40, decoder_dim=16, decoder_layers=1, decoder_heads=2)
    model = page.build({"pixels": Head("pixels", 48, pretraining=True)}, seed=1)
    huggingface.save(tmp_path, model, ImageProcessor(size=8, patch=4).for_model(page))
    again, report = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(again.decoder.decoder_pos_embed[0], Grid(2, 16).table.weight)
    assert huggingface.load(tmp_path).model.config == page


def test_the_encoder_alone_opens(tmp_path):
    theirs(12, 4, 3).vit.save_pretrained(tmp_path)
    assert not huggingface.load(tmp_path).model.heads


def test_widths_that_two_axes_do_not_divide():
    with pytest.raises(UnmaskError, match="decoder_dim is 18"):
        Mae(decoder_dim=18)

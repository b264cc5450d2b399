"""Recipes that learn from pictures."""

from __future__ import annotations

from unmask.models.mae import Mae
from unmask.models.swin import SIZES as SWIN_SIZES
from unmask.models.swin import Swin
from unmask.models.vit import SIZES, Vit
from unmask.objectives.colourisation import ColourisationConfig
from unmask.objectives.contrastive import ContrastiveConfig
from unmask.objectives.contrastive_multiview import ContrastiveMultiviewConfig
from unmask.objectives.jigsaw import JigsawConfig
from unmask.objectives.masked_autoencoder import MaskedAutoencoderConfig
from unmask.objectives.masked_patches import MaskedPatchesConfig
from unmask.objectives.rotation import RotationConfig
from unmask.objectives.super_resolution import SuperResolutionConfig
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def simmim_tiny() -> Pretraining:
    """Masked patches of pictures of 32 pixels, by a ViT of 6 layers of 192 (2.8 M parameters): minutes on a laptop."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768, hides=True)
    rows = Rows(batch=64, first=None, heldout=256)
    return Pretraining(model=model, objective=MaskedPatchesConfig(square=2), rows=rows, training=short(1e-3))


def simmim_base() -> Pretraining:
    """Masked patches of pictures of 224 pixels, by a ViT of 12 layers of 768 (86 M parameters): batch 2,048, as
    published."""
    model = Vit(hides=True).replace(**SIZES["base"])
    objective = MaskedPatchesConfig(size=224, patch=16, square=2)
    optimizer = Optimizer(lr=8e-4, betas=(0.9, 0.999), weight_decay=0.05, clip=5.0)
    schedule = Schedule(warmup=0.1, shape="cosine")
    training = Training(steps=62_500, optimizer=optimizer, schedule=schedule, log_every=100)
    rows = Rows(batch=2_048, first=None, micro_batch=64, workers=4)
    return Pretraining(model=model, objective=objective, rows=rows, training=training)


def simmim_swin_tiny() -> Pretraining:
    """Masked patches of pictures of 32 pixels, by a Swin with windows of 4 patches and stages of 2, 2 and 2 blocks (0.3
    M parameters): minutes on a laptop."""
    model = Swin(**SWIN_SIZES["cpu"]).replace(hides=True, drop_path=0.0)  # no stochastic depth, as published
    rows = Rows(batch=64, first=None, heldout=256)
    objective = MaskedPatchesConfig(patch=2, square=4)
    return Pretraining(model=model, objective=objective, rows=rows, training=short(1e-3))


def mae_tiny() -> Pretraining:
    """Pictures of 32 pixels from a quarter of their patches, by an MAE of 6 layers of 192 with a decoder of 2 layers of
    96: minutes on a laptop."""
    trunk = Mae(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    model = trunk.replace(decoder_dim=96, decoder_layers=2, decoder_heads=3, decoder_hidden=384)
    rows = Rows(batch=64, first=None, heldout=256)
    return Pretraining(model=model, objective=MaskedAutoencoderConfig(), rows=rows, training=short(1e-3))


def mae_base() -> Pretraining:
    """The same of pictures of 224 pixels, by ViT-base with a decoder of 8 layers of 512, on normalised patches: batch
    4,096, for 800 epochs of ImageNet-1k, as published (He et al. 2022, table 8), but without crops and flips."""
    objective = MaskedAutoencoderConfig(size=224, patch=16, normalised=True)
    # The rate is 1.5e-4 * batch / 256. The table lacks the two eps and clipping, which are those of the authors' code.
    optimizer = Optimizer(lr=2.4e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.05, clip=None)
    schedule = Schedule(warmup=0.05, shape="cosine")  # 40 epochs
    training = Training(steps=250_000, optimizer=optimizer, schedule=schedule, log_every=100)
    rows = Rows(batch=4_096, first=None, micro_batch=128, workers=4)
    return Pretraining(model=Mae(eps=1e-6), objective=objective, rows=rows, training=training)


def simclr_tiny() -> Pretraining:
    """Two views of pictures of 32 pixels, by a ViT of 6 layers of 192 (2.8 M parameters): 128 pictures a step."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=256, first=None, heldout=512)
    training = short(1e-3).replace(optimizer={"algorithm": "muon"})  # AdamW at this rate learns less (docs/log.md)
    return Pretraining(model=model, objective=ContrastiveConfig(), rows=rows, training=training)


def cmc_tiny() -> Pretraining:
    """Lightness and colours of pictures of 32 pixels, by a ViT of 6 layers of 192 (2.8 M parameters): 128 pictures a
    step."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=256, first=None, heldout=512)
    training = short(1e-3).replace(optimizer={"algorithm": "muon"})
    return Pretraining(model=model, objective=ContrastiveMultiviewConfig(), rows=rows, training=training)


def colour_tiny() -> Pretraining:
    """The colours of pictures of 32 pixels from their lightness, by a ViT of 6 layers of 192 (2.8 M parameters):
    minutes on a laptop."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=64, first=None, heldout=256)
    return Pretraining(model=model, objective=ColourisationConfig(), rows=rows, training=short(1e-3))


def super_resolution_tiny() -> Pretraining:
    """Pictures of 32 pixels from ones that were shrunk four times, by a ViT of 6 layers of 192 (2.8 M parameters):
    minutes on a laptop."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=64, first=None, heldout=256)
    return Pretraining(model=model, objective=SuperResolutionConfig(), rows=rows, training=short(1e-3))


def rotation_tiny() -> Pretraining:
    """Rotations of pictures of 32 pixels, by a ViT of 6 layers of 192 (2.7 M parameters): 64 pictures a step, each in
    four rotations."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=256, first=None, heldout=1_024)
    return Pretraining(model=model, objective=RotationConfig(), rows=rows, training=short(1e-3))


def jigsaw_tiny() -> Pretraining:
    """The order of nine tiles of 8 pixels, cut out of 30 pixels, by a ViT of 6 layers of 192 (2.7 M parameters)."""
    model = Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768)
    rows = Rows(batch=128, first=None, heldout=512)
    return Pretraining(model=model, objective=JigsawConfig(), rows=rows, training=short(1e-3))

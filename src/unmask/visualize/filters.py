"""Filters: what the first layer of a model of pictures responds to.

Shapes: D filters, C channels, P pixels of the side of a patch or of a kernel, F = C * P * P.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.nn.embedding import Patch
from unmask.visualize import gallery
from unmask.visualize.numbers import Data

COMPONENTS, KERNELS = 28, 256  # most that are shown; the figure of the paper has 28 components
ACROSS = 7
DIFFERENT = "This view needs a model of pictures with an embedding of patches, or with convolutions."


def filters(model: nn.Module) -> Data:
    """The principal components of the filters that embed patches (Dosovitskiy et al. 2021, figure 7, left); of a model
    without patches, the kernels of its first convolution. Raises UnmaskError for a model with neither."""
    config = getattr(model, "config", None)
    if config is None or "pictures" not in config.offers:
        raise UnmaskError(DIFFERENT)
    for part in model.modules():
        if isinstance(part, Patch):
            weights_DF = _numpy(part.project.weight)
            return _components(weights_DF.reshape(len(weights_DF), config.channels, config.patch, config.patch))
        if isinstance(part, nn.Conv2d) and part.in_channels in (1, 3):
            return _kernels(_numpy(part.weight))
    raise UnmaskError(DIFFERENT)


def components(weights_DF: np.ndarray, most: int = COMPONENTS) -> tuple[np.ndarray, np.ndarray]:
    """The principal components of some filters [K, F], the first one first, and the share of the variance of each [K].
    The sign of a component, which a PCA leaves open, makes its largest number positive."""
    centred_DF = weights_DF - weights_DF.mean(0)
    _, sizes, components_KF = np.linalg.svd(centred_DF, full_matrices=False)
    largest_K = np.abs(components_KF).argmax(1)
    signs_K = np.sign(components_KF[np.arange(len(components_KF)), largest_K])
    shares_K = sizes**2 / max(float((sizes**2).sum()), 1e-30)
    return (components_KF * signs_K[:, None])[:most], shares_K[:most]


def _components(weights_DCPP: np.ndarray) -> Data:
    D, *shape = weights_DCPP.shape
    found_KF, shares_K = components(weights_DCPP.reshape(D, -1).astype(np.float64))
    cells = [
        gallery.picture(_colours(one.reshape(shape)), f"{100 * share:.1f} %")
        for one, share in zip(found_KF, shares_K, strict=True)
    ]
    title = f"The first {len(cells)} principal components, with their shares of the variance"
    lead = (
        f"A linear map with {D} filters embeds each patch of {shape[1]} x {shape[2]} pixels. Their principal "
        "components are pictures of one patch; grey is zero, and each has its own scale."
    )
    return gallery.gallery(lead, [gallery.group(title, cells, ACROSS, size=72)])


def _kernels(weights_DCPP: np.ndarray) -> Data:
    D, _, *shape = weights_DCPP.shape
    cells = [gallery.picture(_colours(one)) for one in weights_DCPP[:KERNELS]]
    lead = (
        f"The kernels of the first convolution, {D} of {shape[0]} x {shape[1]} pixels; grey is zero, and each has its "
        "own scale."
    )
    title = "Kernels" if len(cells) == D else f"The first {len(cells)} kernels"
    return gallery.gallery(lead, [gallery.group(title, cells, 16, size=48)])


def _colours(weights_CPP: np.ndarray) -> np.ndarray:
    """[P, P, C] uint8: zero is grey, and the number with the largest size is 1 or 255."""
    scaled = weights_CPP / max(float(np.abs(weights_CPP).max()), 1e-30)
    return np.rint(128 + 127 * scaled).astype(np.uint8).transpose(1, 2, 0)


def _numpy(weight: torch.Tensor) -> np.ndarray:
    found: np.ndarray = weight.detach().float().cpu().numpy()
    return found

"""Entries on pictures: patches, windows, views and triplets.

Shapes: H height and W width in pixels, C channels, N patches or vectors, G places along a side of a grid.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from unmask.data.files.png import png
from unmask.data.pictures.processor import ImageProcessor
from unmask.nn.windows import partition, shifted_mask
from unmask.objectives.contrastive import nt_xent
from unmask.runs.lectures.entry import Shown, entry
from unmask.tasks.triplets import BatchTriplets, Miner
from unmask.train.report import Captioned, Chart, Gallery, Heatmap, Series, Table


def landscape(side: int) -> np.ndarray:
    """[side, side, 3] uint8: a sun over a hill."""
    y, x = np.mgrid[:side, :side] / side
    picture = np.stack([0.45 + 0.3 * y, 0.65 + 0.2 * y, np.full_like(y, 0.95)], -1)
    picture[(x - 0.7) ** 2 + (y - 0.3) ** 2 < 0.02] = (1.0, 0.85, 0.2)
    picture[y > 0.75 - 0.25 * np.sin(np.pi * x)] = (0.3, 0.6, 0.3)
    return np.rint(255 * picture).astype(np.uint8)


@entry("A picture is worth 16 × 16 words", code="data/pictures/processor.py", test="lectures/test_picture_entries.py")
def patches(quick: bool) -> Shown:
    """ViT cuts a picture of H × W pixels into H W / P² patches, and maps the P² C numbers of each to a vector
    (Dosovitskiy et al. 2021, section 3.1). With the class token, a picture of 224 pixels is a sequence of 197 places
    for P = 16. The attention of a layer grows with the square of that number.
    """
    processor = ImageProcessor(size=32, patch=8)
    picture = landscape(32)
    signal = processor.example(picture).signal
    assert signal is not None
    cut = signal[1].reshape(-1, 3, 8, 8).transpose(0, 2, 3, 1)
    shown = np.rint((cut + 1) * 127.5).astype(np.uint8)
    apart = np.pad(shown.reshape(4, 4, 8, 8, 3), ((0, 0), (0, 0), (0, 2), (0, 2), (0, 0)), constant_values=255)
    whole = {"whole": picture, "cut": apart.swapaxes(1, 2).reshape(40, 40, 3)}
    cells = [Captioned(png(one), [f"patch {i}"], good=None) for i, one in enumerate(shown, 1)]
    rows = []
    for size, patch in ((224, 32), (224, 16), (224, 14), (384, 16)):
        places = ImageProcessor(size=size, patch=patch).length
        rows.append((size, patch, places, 3 * patch**2, places**2))
    return Shown(
        f"A picture of 224 pixels has {rows[1][2]} places with P = 16; with P = 32 it has {rows[0][2]}, and attention "
        f"{rows[1][4] / rows[0][4]:.1f} times fewer pairs.",
        [Table("Places of a picture", ["pixels", "P", "places", "numbers of a patch", "pairs of places"], rows)],
        [
            Gallery(
                "A picture of 32 × 32 pixels",
                [*(Captioned(png(one), [name], good=None) for name, one in whole.items()), *cells],
            )
        ],
    )


@entry("Shifted windows", code="nn/windows.py", test="lectures/test_picture_entries.py")
def shifted_windows(quick: bool) -> Shown:
    """Swin attends within windows of W × W places, and shifts them by half a window in every second layer, so that
    neighbouring windows exchange information (Liu et al. 2021, section 3.2). After the cyclic shift, the last window
    holds parts of the picture that are not neighbours: the mask hides them from each other (figure 4). The cost is
    linear in the number of places.
    """
    G, W = 8, 4
    number_GG = torch.arange(G * G).view(G, G)
    windows = [partition(x[None, ..., None], W)[..., 0] for x in (number_GG, number_GG.roll((-2, -2), (0, 1)))]
    window_of = torch.zeros(2, G * G)
    for i, one in enumerate(windows):
        for number, places in enumerate(one):
            window_of[i, places] = number
    mask_PTT = shifted_mask(G, W, W // 2)[:, 0]
    visible = [float((one == 0).float().mean()) for one in mask_PTT]
    names, pairs = ([str(i) for i in range(1, n + 1)] for n in (G, W * W))
    rows = []
    for grid, window in ((56, 7), (28, 7), (14, 7), (7, 7)):
        rows.append((f"{grid} × {grid}", grid**4, grid**2 * window**2, grid**2 / window**2))
    return Shown(
        f"In the windows after the shift, {', '.join(f'{share:.0%}' for share in visible)} of the pairs are visible. "
        f"Windows of 7 cost {rows[0][3]:.0f} times less than attention over a grid of {rows[0][0]}.",
        [Table("Pairs of places", ["grid", "all", "in windows of 7", "ratio"], rows)],
        [
            *(
                Heatmap(title, names, names, ((1 + window_of[i].view(G, G)) / 4).tolist())
                for i, title in enumerate(("Windows of a layer, by shade", "Windows of the next layer, by shade"))
            ),
            Heatmap(
                "Visible pairs of the last window after the shift", pairs, pairs, (mask_PTT[-1] == 0).float().tolist()
            ),
        ],
    )


@entry(
    "Contrastive loss, its temperature and its negatives",
    code="objectives/contrastive.py",
    test="lectures/test_picture_entries.py",
)
def contrastive(quick: bool) -> Shown:
    """NT-Xent is the cross-entropy of finding the other view of a picture among all views of a batch, by cosine
    similarity divided by a temperature (Chen et al. 2020, equation 1). Views at random cost log(2N - 1) or more; the
    temperature decides how much a near negative counts.
    """
    generator, pictures = torch.Generator().manual_seed(0), (64 if quick else 256)
    base = torch.randn(pictures, 1, 32, generator=generator)
    noise = torch.randn(pictures, 2, 32, generator=generator)
    lines, rows = [], []
    for temperature in (0.05, 0.1, 0.5, 1.0):
        points = []
        for share in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0):  # of the picture in a view, the rest is noise
            loss = nt_xent((share**0.5 * base + (1 - share) ** 0.5 * noise).flatten(0, 1), temperature)
            points.append((share, float(loss.sum / loss.count)))
        lines.append(Series(f"temperature {temperature:g}", points))
        rows.append((temperature, points[0][1], points[3][1], points[-1][1]))
    chance = math.log(2 * pictures - 1)
    return Shown(
        f"Guessing among {2 * pictures - 1:,} views costs {chance:.2f} nats. Equal views cost {rows[0][3]:.2g} with a "
        f"temperature of 0.05 and {rows[-1][3]:.2f} with 1: cosines between -1 and 1 cannot be more certain.",
        [Table(f"Loss of {pictures} pictures", ["temperature", "noise alone", "60 % picture", "equal views"], rows)],
        [Chart("Loss by the share of the picture in a view", lines, x="share", floors={"chance": chance})],
    )


@entry("Triplets: which negatives teach", code="tasks/triplets.py", test="lectures/test_picture_entries.py")
def triplets(quick: bool) -> Shown:
    """max(0, |a - p|² - |a - n|² + margin) is 0 for most negatives once the classes are apart (Schroff et al. 2015,
    equation 3). A miner chooses those that still teach: the hardest of the batch, or semi-hard ones, which are farther
    than the positive but within the margin.
    """
    generator = torch.Generator().manual_seed(0)
    classes_N = torch.arange(8).repeat_interleave(8)
    centres = torch.randn(8, 16, generator=generator)
    noise = torch.randn(64, 16, generator=generator)
    names: tuple[Miner, ...] = ("all", "semi-hard", "hard")
    rows = []
    for apart in (0.0, 0.5, 1.0, 2.0, 4.0):
        units = torch.nn.functional.normalize(apart * centres[classes_N] + noise, dim=-1)
        found = [BatchTriplets(0.2, miner)(units, classes_N) for miner in names]
        rows.append((apart, *(float(one.metrics["active"] / one.count) for one in found)))
    lines = [Series(name, [(row[0], row[i]) for row in rows]) for i, name in enumerate(names, 1)]
    return Shown(
        f"With classes 2 apart, {rows[3][1]:.1%} of all triplets have a loss, and {rows[3][3]:.0%} of the hardest.",
        [Table("Share of the triplets with a loss", ["distance of classes", *names], rows)],
        [Chart("Share of the triplets with a loss", lines, x="distance of classes, in deviations")],
    )


ENTRIES = (patches, shifted_windows, contrastive, triplets)

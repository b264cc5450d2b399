"""ImageProcessor: converts pictures to patches, like the image processors of `transformers`.

Shapes: H height and W width in pixels; C channels; P pixels of the side of a patch; N patches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.config import Config, read_json, typed
from unmask.data.pictures.decoding import resize
from unmask.data.processor import Processor, Region
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.types import Example, Kind

FILE, NESTED = "preprocessor_config.json", "processor_config.json"
HALF = (0.5, 0.5, 0.5)
CONVNEXT_SQUARE = 384  # size from which the processor of ConvNeXt, which ResNet shares, makes pictures square


@dataclass(frozen=True, kw_only=True)
class ImageProcessor(Config, Processor[np.ndarray]):
    """Pictures [H, W, C] uint8 -> a square of `size` pixels, scaled and normalised, cut into patches of `patch` pixels.

    size        pixels of the side of the square that the model reads
    patch       P, pixels of the side of a patch
    resize_to   pixels of the side of the resized picture, from which a centre crop is taken; None: `size`
    ratio       whether the resized picture keeps the ratio of its sides, of which `resize_to` is then the shorter one;
                else it is a square
    resample    method of resizing: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic
    scale       factor of the pixels
    mean, std   values of each channel for the normalisation (scaled - mean) / std
    summaries   kinds of places before the patches
    """

    size: int = 224
    patch: int = 16
    resize_to: int | None = None
    ratio: bool = False
    resample: int = 2
    scale: float = 1 / 255
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    summaries: tuple[int, ...] = (int(Kind.CLS),)

    pad = Kind.PADDING

    @property
    def channels(self) -> int:
        """C."""
        return len(self.mean)

    @property
    def length(self) -> int:
        """Number of summaries and patches of a picture."""
        return len(self.summaries) + (-(-self.size // self.patch)) ** 2

    def pixels(self, item: np.ndarray) -> np.ndarray:
        """The normalised pixels of a picture, [C, size, size] float32. Raises UnmaskError if `item` is not a picture
        with these channels."""
        if item.ndim != 3 or item.shape[2] != self.channels or not item.size:
            raise UnmaskError(f"A picture must be an array [height, width, {self.channels}], not {list(item.shape)}.")
        height, width = self._resized(item)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        square = resize(np.asarray(item, np.uint8), height, width, self.resample)
        square = square[top : top + self.size, left : left + self.size]
        scaled = (square.astype(np.float64) * self.scale).astype(np.float32)
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return ((scaled - mean) / std).transpose(2, 0, 1)

    def _resized(self, item: np.ndarray) -> tuple[int, int]:
        """Height and width of the resized picture, in pixels."""
        side, (height, width, _) = self.resize_to or self.size, item.shape
        if not self.ratio:
            return side, side
        return max(side, int(side * height / width)), max(side, int(side * width / height))

    def example(self, item: np.ndarray) -> Example:
        """The summaries, then the patches from left to right and from top to bottom; values [N, C * P * P]. Zeros fill
        the last patches of a side that P does not divide."""
        return self.patches(self.pixels(item))

    def patches(self, pixels_CHW: np.ndarray) -> Example:
        """The example of a picture that is normalised already."""
        P = self.patch
        if beyond := -pixels_CHW.shape[1] % P:
            pixels_CHW = np.pad(pixels_CHW, ((0, 0), (0, beyond), (0, beyond)))
        C, H, W = pixels_CHW.shape
        cut = pixels_CHW.reshape(C, H // P, P, W // P, P).transpose(1, 3, 0, 2, 4)
        values = np.ascontiguousarray(cut.reshape(-1, C * P * P), np.float32)
        first = len(self.summaries)
        tokens = np.full(first + len(values), int(Kind.SIGNAL), np.int64)
        tokens[:first] = self.summaries
        return Example(tokens, signal=(np.arange(first, len(tokens)), values))

    def describe(self, item: np.ndarray, place: int) -> Region | None:
        """The box of pixels of the picture that a patch covers, x before y."""
        grid, first = -(-self.size // self.patch), len(self.summaries)
        if not 0 <= place < grid**2 + first:
            raise UnmaskError(f"The picture has {grid**2 + first} places, so there is no place {place}.")
        if place < first:
            return None
        resized, begin, end = self._resized(item), [0.0, 0.0], [0.0, 0.0]
        for axis, n in enumerate(divmod(place - first, grid)):
            margin, scale = (resized[axis] - self.size) // 2, item.shape[axis] / resized[axis]
            begin[1 - axis] = (margin + n * self.patch) * scale
            end[1 - axis] = (margin + min((n + 1) * self.patch, self.size)) * scale
        return Region("pixels", tuple(begin), tuple(end))

    def save(self, folder: Path, /) -> list[str]:
        """Write preprocessor_config.json, which `transformers` reads; only unmask uses `patch_size` and `summaries`."""
        side = self.resize_to or self.size
        values: dict[str, Any] = {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": list(self.mean),
            "image_processor_type": "ViTImageProcessor",
            "image_std": list(self.std),
            "patch_size": self.patch,
            "resample": self.resample,
            "rescale_factor": self.scale,
            "size": {"shortest_edge": side} if self.ratio else {"height": side, "width": side},
            "summaries": [Kind(kind).name for kind in self.summaries],
        }
        if self.resize_to is not None or self.ratio:
            crop = {"height": self.size, "width": self.size}
            values |= {"crop_size": crop, "do_center_crop": True, "image_processor_type": "DeiTImageProcessor"}
        write_text(folder / FILE, json.dumps(values, indent=2, sort_keys=True) + "\n")
        return [FILE]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load a file that `save`, or an image processor of `transformers`, wrote. Raises UnmaskError for a damaged
        file, and for settings that do not give a square picture."""
        place = folder / NESTED if (folder / NESTED).is_file() else folder / FILE
        values = read_json(place)
        values = values.get("image_processor", values)
        if not isinstance(values, Mapping):
            raise UnmaskError(f"{place}: image_processor must be an object with fields, not {values!r}.")
        return cls(**_read(values, place))

    def resized(self, size: int) -> Self:
        """A copy that returns squares of `size` pixels; a centre crop takes the same share of the picture."""
        resize_to = None if self.resize_to is None else round(self.resize_to * size / self.size)
        return replace(self, size=size, resize_to=resize_to)

    def for_model(self, config: Any) -> Self:
        """A copy with the patches and summaries of a model. Raises UnmaskError if their sizes or channels differ."""
        if (self.size, self.channels) != (config.size, config.channels):
            raise UnmaskError(
                f"The processor returns pictures of {self.size} pixels with {self.channels} channels, but the model "
                f"reads {config.size} pixels with {config.channels}: use the processor of the model."
            )
        return replace(self, patch=config.patch, summaries=tuple(map(int, config.summaries)))


def _read(values: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """Fields of a processor from those of `transformers`; absent ones have the defaults of `transformers`."""
    for name in ("do_resize", "do_rescale", "do_normalize"):
        if not values.get(name, True):
            raise UnmaskError(f"{place}: {name} = false is not supported; pictures are resized, scaled and normalised.")

    def side(name: str, value: Any) -> int:
        if isinstance(value, Mapping):
            sides = {value.get("height"), value.get("width"), value.get("shortest_edge")} - {None}
            value = sides.pop() if len(sides) == 1 else None
        found = typed(value, int | None, f"{place}: {name}")
        if found is None or not 1 <= found <= 1 << 13:
            raise UnmaskError(
                f"{place}: {name} = {values.get(name)!r} is not supported; it must be the side of a square."
            )
        return int(found)

    size, resize_to = side("size", values.get("size", 224)), None
    ratio = isinstance(values.get("size"), Mapping) and "shortest_edge" in values["size"]
    if values.get("do_center_crop"):
        size, resize_to = side("crop_size", values.get("crop_size", 224)), size
        if resize_to < size:
            raise UnmaskError(f"{place}: {size} pixels cannot be cut out of {resize_to}.")
    elif values.get("crop_pct") is not None and size < CONVNEXT_SQUARE:
        share = typed(values["crop_pct"], float, f"{place}: crop_pct")
        if not 0.1 <= share <= 1:
            raise UnmaskError(f"{place}: crop_pct = {share} must be the share of a side that is kept, from 0.1 to 1.")
        resize_to, ratio = int(size / share), True
    else:
        ratio = False
    names = values.get("summaries", ["CLS"])
    if not isinstance(names, list) or not all(name in Kind.__members__ for name in names):
        raise UnmaskError(f"{place}: summaries = {names!r} must be a list of kinds of places, such as CLS.")
    found = {
        "size": size,
        "resize_to": resize_to,
        "ratio": ratio,
        "resample": values.get("resample", 2),
        "scale": values.get("rescale_factor", 1 / 255),
        "mean": values.get("image_mean", HALF),
        "std": values.get("image_std", HALF),
        "patch": values.get("patch_size", 16),
    }
    hints = {"resample": int, "scale": float, "mean": tuple[float, ...], "std": tuple[float, ...], "patch": int}
    found |= {name: typed(found[name], hint, f"{place}: {name}") for name, hint in hints.items()}
    if len(found["mean"]) != len(found["std"]) or len(found["mean"]) not in (1, 3) or not all(found["std"]):
        raise UnmaskError(
            f"{place}: image_mean and image_std must have a number for each of 1 or 3 channels, and image_std no 0."
        )
    if not 0 <= found["resample"] <= 5 or found["patch"] < 1:
        raise UnmaskError(f"{place}: resample must be 0 to 5, and patch_size at least 1.")
    return found | {"summaries": tuple(int(Kind[name]) for name in names)}

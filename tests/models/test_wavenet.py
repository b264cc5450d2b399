"""WaveNet beside its equations in torch.nn.functional, and samples written one by one beside whole passes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import huggingface
from unmask.data import collate
from unmask.data.recordings.decoding import decode as decoded
from unmask.data.recordings.encoding import write_wav
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.generate import Sampling, draws
from unmask.models.wavenet import WaveNet, WaveNetModel
from unmask.nn.mu_law import decode, encode
from unmask.serve.sounds import sounds
from unmask.types import Batch, Head

PAGE = WaveNet(vocabulary=16, dim=5, skip=7, dilations=(1, 2, 4, 1, 2), kernel=2)
PROCESSOR = RecordingProcessor(rate=8_000, normalise=False).for_model(PAGE)


def built(page: WaveNet = PAGE) -> WaveNetModel:
    model = page.build(seed=0).double().eval()
    assert isinstance(model, WaveNetModel)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def recordings(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, n).astype(np.float32) for n in lengths]


def batch_of(sounds: list[np.ndarray]) -> Batch:
    batch = PROCESSOR.collate([PROCESSOR.example(sound) for sound in sounds])
    return batch.map(lambda x: x.double() if x.is_floating_point() else x)


def logits_of(model: WaveNetModel, batch: Batch) -> Tensor:
    hidden_BTD = model(batch)
    return model.answer("samples", hidden_BTD, torch.arange(hidden_BTD[..., 0].numel()), batch)


def equations(model: WaveNetModel, page: WaveNet, sound: np.ndarray) -> Tensor:
    """[T, V]: figure 4 and equation 2, by one-hot vectors and torch.nn.functional."""
    one_hot_TV = F.one_hot(encode(torch.from_numpy(sound), page.vocabulary), page.vocabulary).double()
    x_1DT = (one_hot_TV @ model.embedding.features.table.weight).T[None]
    skips_1ET = torch.zeros(1, page.skip, len(sound), dtype=torch.float64)
    for i, d in enumerate(page.dilations):
        layer = model.stack.convolutions[i]
        weight_OKD = layer.weight.view(2 * page.dim, page.kernel, page.dim)
        padded_1DT = F.pad(x_1DT, ((page.kernel - 1) * d, 0))
        f_1DT, g_1DT = F.conv1d(padded_1DT, weight_OKD.transpose(1, 2), layer.bias, dilation=d).chunk(2, 1)
        z_1DT = torch.tanh(f_1DT) * torch.sigmoid(g_1DT)
        skip = model.stack.skips[i]
        skips_1ET = skips_1ET + F.conv1d(z_1DT, skip.weight[..., None], skip.bias)
        if i < len(page.dilations) - 1:
            residual = model.stack.residuals[i]
            x_1DT = x_1DT + F.conv1d(z_1DT, residual.weight[..., None], residual.bias)
    head = model.heads["samples"]
    y_1ET = F.conv1d(skips_1ET.relu(), head.dense.weight[..., None], head.dense.bias).relu()
    return F.conv1d(y_1ET, head.output.weight[..., None], head.output.bias)[0].T


@pytest.mark.parametrize("kernel", [2, 3])
def test_it_is_the_equations_of_the_paper(kernel: int) -> None:
    page = PAGE.replace(kernel=kernel)
    model, [sound] = built(page), recordings(40)
    torch.testing.assert_close(logits_of(model, batch_of([sound])), equations(model, page, sound))


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_prediction_depends_on_the_samples_of_the_receptive_field(kernel: int) -> None:
    model, [sound] = built(PAGE.replace(kernel=kernel)), recordings(50)
    x_BTD = model.embedding.features.table(encode(torch.from_numpy(sound), 16))[None].detach().requires_grad_()
    [gradient_BTD] = torch.autograd.grad(model.stack(x_BTD)[0, -1].sum(), x_BTD)
    reads = 1 + (kernel - 1) * sum(PAGE.dilations)
    assert model.stack.receptive_field == reads
    assert gradient_BTD[0].abs().sum(-1).nonzero().flatten().tolist() == list(range(50 - reads, 50))


def test_samples_one_by_one_from_queues_are_those_of_whole_passes() -> None:
    model, beginnings = built(), recordings(9, 9)
    how, steps = Sampling(samples=2, seed=3), 30
    written_SN = torch.stack(list(islice(draws(model, batch_of(beginnings), how), steps)))
    generator = how.generator(torch.device("cpu"))
    codes_NT = encode(torch.from_numpy(np.stack(beginnings)), 16).repeat_interleave(2, 0)
    for step in range(steps):
        sounds_N = [decode(codes_T, 16).numpy() for codes_T in codes_NT]
        logits_NV = logits_of(model, batch_of(sounds_N)).unflatten(0, codes_NT.shape)[:, -1]
        next_N = how.draw(logits_NV.float().detach(), generator)
        assert torch.equal(next_N, written_SN[step])
        codes_NT = torch.cat([codes_NT, next_N[:, None]], 1)
    with pytest.raises(UnmaskError, match="the same length"):
        model.prefill(batch_of(recordings(9, 5)))


def test_a_folder_writes_the_same_sound_after_silence_or_a_recording(tmp_path: Path) -> None:
    model = built().float()
    huggingface.save(tmp_path / "model", model, PROCESSOR)
    loaded = huggingface.load(tmp_path / "model")
    assert not loaded.processor.normalise
    write_wav(tmp_path / "given.wav", recordings(200)[0], 8_000)
    for beginning in (None, tmp_path / "given.wav"):
        written, rate = sounds(loaded, Sampling(), 0.01, beginning)
        before = np.zeros(1, np.float32) if beginning is None else decoded(beginning, 8_000)
        batch = PROCESSOR.collate([PROCESSOR.example(before)])
        wanted = decode(torch.cat(list(islice(draws(model, batch, Sampling()), 80))), 16)
        assert (rate, written.tolist()) == (8_000, wanted.tolist())
    for how, seconds, message in ((Sampling(samples=2), 1.0, "leave --samples out"), (Sampling(), 0.0, "above 0")):
        with pytest.raises(UnmaskError, match=message):
            sounds(loaded, how, seconds)
    huggingface.save(tmp_path / "labels", PAGE.build({"tagging": Head("token", 2)}), PROCESSOR, labels=["a", "b"])
    with pytest.raises(UnmaskError, match="does not predict the samples"):
        sounds(huggingface.load(tmp_path / "labels"), Sampling(), 0.01)


def test_a_wav_file_has_the_samples_that_it_was_given(tmp_path: Path) -> None:
    [sound] = recordings(500)
    write_wav(tmp_path / "x.wav", sound, 8_000)
    np.testing.assert_allclose(decoded(tmp_path / "x.wav", 8_000), sound, atol=1e-4)


def test_packed_recordings_do_not_hear_each_other() -> None:
    model, sounds = built(), recordings(30, 11, 17)
    packed = collate.pack([PROCESSOR.example(sound) for sound in sounds], 30, PROCESSOR.pad)
    packed = packed.map(lambda x: x.double() if x.is_floating_point() else x)
    assert packed.tokens.shape == (2, 30)
    assert packed.starts is not None
    hidden_ND = model(packed).flatten(0, 1)
    for sound, start in zip(sounds, packed.starts.tolist(), strict=True):
        torch.testing.assert_close(hidden_ND[start : start + len(sound)], model(batch_of([sound]))[0])


def test_one_level_is_refused() -> None:
    with pytest.raises(UnmaskError, match="at least 2 levels"):
        WaveNet(vocabulary=1)

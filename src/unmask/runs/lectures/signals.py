"""Entries on sound and records of sensors: frames, masks, codebooks, alignments, beats.

Shapes: N samples, F frames, C labels and the blank, S labels, V entries of a codebook.
"""

from __future__ import annotations

import math
from itertools import groupby, product

import numpy as np
import torch

from unmask.data.recordings.features import LogMel, mel
from unmask.data.recordings.synthetic import Voice, spoken
from unmask.data.signals.synthetic import Heart, pulse, record
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.nn.quantiser import ProductQuantiser
from unmask.nn.recordings import reach
from unmask.nn.rhythms import KnowledgeAttention, steps
from unmask.objectives.crops import spans
from unmask.objectives.ctc import equation
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Heatmap, Series, Table


@entry("From samples to frames", code="nn/recordings.py", test="lectures/test_signal_entries.py")
def frames(quick: bool) -> Shown:
    """wav2vec 2.0 reads 16,000 samples a second by seven convolutions with strides (Baevski et al. 2020, section 4.2).
    The strides multiply to 320 samples, 20 ms, from one frame to the next; a frame sees 400 samples, 25 ms.
    """
    model, rows = Wav2Vec2(), []
    for layer in range(1, len(model.kernels) + 1):
        hop, window = reach(model.kernels[:layer], model.strides[:layer])
        rows.append((layer, model.kernels[layer - 1], model.strides[layer - 1], hop, window, 16_000 / hop))
    return Shown(
        f"A frame begins every {rows[-1][3]} samples and sees {rows[-1][4]}: {rows[-1][5]:.0f} frames a second.",
        [Table("After each layer", ["layer", "kernel", "stride", "hop", "window", "frames a second"], rows)],
    )


@entry("Masked frames: half of a recording", code="objectives/crops.py", test="lectures/test_signal_entries.py")
def masked_frames(quick: bool) -> Shown:
    """A share of 0.065 of the frames begins a masked span of 10 (Baevski et al. 2020, section 3.1). The spans overlap,
    so that not 65 % but about half of the frames are masked, in stretches longer than 10.
    """
    F, rng, draws = 750, np.random.default_rng(0), (20 if quick else 200)
    shares, stretches, first = [], [], np.zeros(F, bool)
    for i in range(draws):
        masked = np.zeros(F, bool)
        masked[spans(F, 0.65, 10, rng)] = True
        shares.append(masked.mean())
        stretches += [len([*run]) for kind, run in groupby(masked) if kind]
        if not i:
            first = masked
    wanted = 1 - (1 - 0.065) ** 10
    names, columns = [f"{t / 2:g} s" for t in range(8)], [str(i) for i in range(1, 26)]
    shown = first[:200].reshape(8, 25).astype(float)
    row = (float(np.mean(shares)), float(np.mean(stretches)), max(stretches))
    return Shown(
        f"{np.mean(shares):.1%} of the frames are masked (1 - (1 - 0.065)^10 = {wanted:.1%}), in stretches of "
        f"{np.mean(stretches):.1f} frames on average, {20 * np.mean(stretches):.0f} ms.",
        [Table(f"{draws} recordings of {F} frames (15 s)", ["share masked", "mean stretch", "longest"], [row])],
        [Heatmap("The first 4 s of a recording: masked frames of 20 ms", names, columns, shown.tolist())],
    )


@entry(
    "A codebook that is used, and one that collapsed", code="nn/quantiser.py", test="lectures/test_signal_entries.py"
)
def quantiser(quick: bool) -> Shown:
    """wav2vec 2.0 replaces a frame by an entry of each of two codebooks, drawn by Gumbel noise in training; a diversity
    loss rewards an even use (Baevski et al. 2020, sections 2 and 3.2). The perplexity of a codebook whose V entries are
    used evenly is V; near 1 it has collapsed.
    """
    V, generator = 16, torch.Generator().manual_seed(0)
    frames_MC = torch.randn(2_000, 8, generator=generator)
    rows = []
    for name, bias in (("even", 0.0), ("uneven", 3.0), ("collapsed", 30.0)):
        part = ProductQuantiser(8, 1, V, 8).eval()
        part.initialise(generator)
        with torch.no_grad():
            part.weight_proj.bias[0] = bias  # one entry is always more likely
            found = part(frames_MC)
        counts = found.codes.flatten().bincount(minlength=V)
        rows.append((name, float(found.perplexity[0]), int((counts > 0).sum()), int(counts.max()) / len(frames_MC)))
    return Shown(
        f"Of {V} entries, the perplexity is {rows[0][1]:.1f} with even use, {rows[1][1]:.1f} where one is favoured, "
        f"and {rows[2][1]:.1f} where it wins always.",
        [Table("2,000 frames", ["codebook", "perplexity", "entries used", "share of the most frequent"], rows)],
    )


@entry("CTC: all alignments of a word", code="objectives/ctc.py", test="lectures/test_signal_entries.py")
def ctc_alignments(quick: bool) -> Shown:
    """A recogniser gives each frame a letter or the blank. A path stands for the word that is left when repetitions,
    then blanks, are removed; the probability of a word is the sum over its paths, by a forward recursion (Graves et al.
    2006, section 4.1). A double letter needs a blank in between.
    """
    letters, F = "abn-", 5
    generator = torch.Generator().manual_seed(0)
    log_p_FC = torch.randn(F, len(letters), generator=generator, dtype=torch.float64).log_softmax(-1)
    sums: dict[str, list[float]] = {}
    for path in product(range(len(letters)), repeat=F):
        word = "".join(letters[i] for i, _ in groupby(path)).replace("-", "")
        sums.setdefault(word, []).append(math.exp(sum(log_p_FC[f, i].item() for f, i in enumerate(path))))
    rows = []
    for word in ("ban", "nab", "ann", "a"):
        ids = torch.tensor([letters.index(letter) for letter in word])
        rows.append((word, len(sums[word]), sum(sums[word]), math.exp(-equation(log_p_FC, ids, 3).item())))
    best = max(sums, key=lambda word: sum(sums[word]))
    names = [f"frame {f}" for f in range(1, F + 1)]
    figure = Heatmap("Probabilities of the letters (-: blank)", list(letters), names, log_p_FC.exp().T.tolist())
    return Shown(
        f"In {F} frames, 'ban' has {rows[0][1]} alignments and 'ann', with its double letter, {rows[2][1]}. The most "
        f"probable word is '{best}'.",
        [Table("Probability of a word", ["word", "alignments", "sum over the paths", "recursion"], rows)],
        [figure],
    )


@entry("The mel scale, and a spoken word", code="data/recordings/features.py", test="lectures/test_signal_entries.py")
def mel_scale(quick: bool) -> Shown:
    """m = 2595 log10(1 + f / 700): equal steps of mel are equal steps to the ear, almost linear below 1 kHz and
    logarithmic above. Log-mel spectra add the power in bands that are equally wide on this scale.
    """
    hertz = list(range(0, 8_001, 200))
    edges = np.linspace(0, mel(8_000), 9)
    back = [700 * (10 ** (m / 2_595) - 1) for m in edges]
    rows = [(f, float(mel(f))) for f in (100, 500, 1_000, 2_000, 4_000, 8_000)]
    rng = np.random.default_rng(0)
    voice = Voice(pitch=120, tract=1.0, pace=1.2, breath=0.02, tilt=0.5)
    samples, _ = spoken("so late", voice, 16_000, rng)
    spectrum_FM = LogMel(bands=20)(samples)
    every = -(-len(spectrum_FM) // 30)
    shown = spectrum_FM[::every, ::-1].T
    scaled = (shown - shown.min()) / (shown.max() - shown.min())
    seconds = [f"{0.02 * every * f:.2f} s" for f in range(shown.shape[1])]
    bands = [f"band {b}" for b in range(20, 0, -1)]
    return Shown(
        f"Eight bands of equal mel up to 8 kHz begin at {', '.join(f'{f:,.0f}' for f in back[:-1])} Hz.",
        [Table("Mel of a frequency", ["Hz", "mel"], rows)],
        [
            Chart("Mel by frequency", [Series("mel", [(f, float(mel(f))) for f in hertz])], x="Hz"),
            Heatmap("'so late' in 20 mel bands, the highest at the top", bands, seconds, scaled.tolist()),
        ],
    )


@entry("Two rhythms of a heart", code="data/signals/synthetic.py", test="lectures/test_signal_entries.py")
def rhythms(quick: bool) -> Shown:
    """A normal beat has a P wave, a narrow QRS complex and a T wave, at even intervals. In atrial fibrillation there is
    no P wave, and the intervals are irregular: the classes that `unmask train mina` tells apart. The records are
    synthesised.
    """
    rate, seconds = 300, 20.0
    figures, rows = [], []
    for rhythm, name in (("N", "normal"), ("A", "atrial fibrillation")):
        rng = np.random.default_rng(3)
        signal, beats = record(rhythm, Heart.draw(rng), seconds, rate, rng)
        peaks = beats.samples[[i for i, symbol in enumerate(beats.symbols) if symbol != "+"]]
        gaps = np.diff(peaks) / rate
        rows.append((name, len(peaks), pulse(beats, rate), float(gaps.std() / gaps.mean())))
        points = [(i / rate, float(signal.samples[i, 0])) for i in range(0, 4 * rate, 5)]
        figures.append(Chart(f"{name}: 4 s in mV", [Series(name, points)], x="s"))
    return Shown(
        f"The intervals between beats vary by {rows[0][3]:.0%} in the normal rhythm, and by {rows[1][3]:.0%} in "
        "fibrillation.",
        [Table("20 s", ["rhythm", "beats", "beats a minute", "deviation of the interval / mean"], rows)],
        figures,
    )


@entry("Attention that knows where beats are", code="nn/rhythms.py", test="lectures/test_signal_entries.py")
def beat_attention(quick: bool) -> Shown:
    """MINA weighs the places of a segment by softmax(v · tanh(W [x; k])) with knowledge k (Hong et al. 2019): for
    beats, the absolute step from sample to sample, which is large in a QRS complex. Here W reads k alone, so that the
    weights show what the knowledge says before training.
    """
    rate = 300
    rng = np.random.default_rng(3)
    signal, beats = record("N", Heart.draw(rng), 3.0, rate, rng)
    samples = torch.from_numpy(np.ascontiguousarray(signal.samples[:, 0]))
    known = steps(samples[None, None])[0, 0]
    size = 10  # samples of a place
    x_ID, k_I = samples.unflatten(0, (-1, size)), known.unflatten(0, (-1, size)).amax(1)
    attention = KnowledgeAttention(size, 1)
    with torch.no_grad():
        attention.project.weight.zero_()
        attention.project.weight[0, -1] = 10.0
        attention.score.weight.fill_(3.0)
        _, weights_RI = attention(x_ID[None], k_I[None, :, None])
    weights = weights_RI[0].tolist()
    peaks = {int(place) // size for place, symbol in zip(beats.samples, beats.symbols, strict=True) if symbol != "+"}
    near = sum(w for i, w in enumerate(weights) if any(abs(i - peak) <= 1 for peak in peaks))
    share = sum(any(abs(i - peak) <= 1 for peak in peaks) for i in range(len(weights))) / len(weights)
    seconds = [(i * size / rate, w) for i, w in enumerate(weights)]
    trace = [(i / rate, samples[i].item()) for i in range(0, len(samples), 4)]
    row = (len(peaks), len(weights), share, near)
    return Shown(
        f"The places of the peaks of beats and their neighbours are {share:.0%} of all, and have {near:.0%} of the "
        "weight.",
        [Table("3 s of a normal rhythm", ["beats", "places", "share near a peak", "weight near a peak"], [row])],
        [
            Chart("The record in mV", [Series("ECG", trace)], x="s"),
            Chart("Weights", [Series("weight", seconds)], x="s"),
        ],
    )


ENTRIES = (frames, masked_frames, quantiser, ctc_alignments, mel_scale, rhythms, beat_attention)

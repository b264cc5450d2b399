"""Connectionist temporal classification: -log p of a sequence of labels, given the outputs at the frames of a recording
(Graves et al. 2006).

Shapes: N recordings, M frames of all recordings, F frames of one, S labels of one, C labels and the blank,
L = 2 S + 1 states.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

_IMPOSSIBLE = -1e30  # finite, so that gradients are too


def equation(log_p_FC: Tensor, values_S: Tensor, blank: int) -> Tensor:
    """-log p of the labels in nats: the sum over all alignments, by the forward recursion (section 4.1, equations 6 to
    8), in logarithms.

    An alignment gives each frame a label or the blank; it stands for the labels that remain once repetitions, then
    blanks, are removed. Its states are the labels with a blank before, between and after them: l' in the paper. The
    result is above 1e29 where no alignment fits into the frames.
    """
    states_L = torch.full((2 * len(values_S) + 1,), blank)
    states_L[1::2] = values_S
    # A blank between two labels may be skipped if the labels differ.
    skips_L = (states_L != blank) & (states_L != states_L.roll(2))
    skips_L[:2] = False
    alpha_L = log_p_FC.new_full(states_L.shape, _IMPOSSIBLE)
    alpha_L = torch.cat([log_p_FC[0, states_L[:2]], alpha_L[2:]])
    for log_p_C in log_p_FC[1:]:
        step_L, skip_L = (F.pad(alpha_L, (by, 0), value=_IMPOSSIBLE)[: len(alpha_L)] for by in (1, 2))
        skip_L = skip_L.where(skips_L, skip_L.new_tensor(_IMPOSSIBLE))
        alpha_L = torch.stack([alpha_L, step_L, skip_L]).logsumexp(0) + log_p_C[states_L]
    return -alpha_L[-2:].logsumexp(0)


def ctc(log_p_MC: Tensor, frames_N: Tensor, values: Tensor, lengths_N: Tensor, blank: int) -> Tensor:
    """[N] `equation` of each recording; infinite where no alignment fits into the frames.

    log_p_MC             log probabilities at the frames of all recordings, concatenated; computed in float32
    frames_N             number of frames of each recording
    values, lengths_N    labels of all recordings, concatenated, and the number of each
    """
    log_p_FNC = pad_sequence(list(log_p_MC.float().split(frames_N.tolist())))
    return F.ctc_loss(log_p_FNC, values, frames_N, lengths_N, blank, reduction="none")


def frames_needed(values_S: np.ndarray) -> int:
    """The fewest frames with an alignment: one for each label, and a blank between two equal ones."""
    return len(values_S) + int((values_S[1:] == values_S[:-1]).sum())

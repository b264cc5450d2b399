"""Entries on masked tokens."""

from __future__ import annotations

import numpy as np
import torch

from unmask.objectives.language_modeling import MaskedLM
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Table
from unmask.types import Batch

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIALS, "my", "dog", "is", "hairy", "apple", "cat", "he", "likes", "play", "cute"]
SENTENCE = "[CLS] my dog is hairy [SEP]"


@entry("My dog is hairy: masked tokens", code="objectives/language_modeling.py", test="lectures/test_masking_entry.py")
def masking(quick: bool) -> Shown:
    """A chosen token becomes [MASK] in 80 % of the cases, a random token in 10 %, and stays as it is in 10 %; the model
    predicts the old token in all three (Devlin et al. 2019, section 3.1 and appendix A.1). Without the last two, the
    model would learn nothing of tokens that are not masked, and fine-tuning has no masked ones.

    BERT chooses 15 % of the tokens of a sequence. Of a sentence of four words, at least one is chosen.
    """
    draws, hairy = (2_000 if quick else 50_000), PIECES.index("hairy")
    ids = [PIECES.index(piece) for piece in SENTENCE.split()]
    objective = MaskedLM(mask=PIECES.index("[MASK]"), specials=range(len(SPECIALS)), vocabulary=len(PIECES))
    batch = objective.corrupt(Batch(torch.tensor([ids] * draws)), np.random.default_rng(0))
    rows = batch.targets["mlm"].places[batch.targets["mlm"].values == hairy] // len(ids)  # where it was chosen
    inputs = [[PIECES[i] for i in row] for row in batch.tokens[rows].tolist()]
    found = [words[ids.index(hairy)] for words in inputs]
    kinds = {"[MASK]": ["[MASK]"], "a random token": PIECES[len(SPECIALS) :], "itself": ["hairy"]}
    kinds["a random token"].remove("hairy")
    same = 0.1 / (len(PIECES) - len(SPECIALS))  # the random token is the old one
    expected = {"[MASK]": 0.8, "a random token": 0.1 - same, "itself": 0.1 + same}
    table = []
    for name, words in kinds.items():
        example = next((" ".join(inputs[i][1:-1]) for i, word in enumerate(found) if word in words), "")
        table.append((name, example, sum(word in words for word in found) / len(found), expected[name]))
    return Shown(
        f"Of {draws:,} copies, hairy was chosen in {len(found):,}: {table[0][2]:.1%} became [MASK], {table[1][2]:.1%} "
        f"another token, {table[2][2]:.1%} stayed.",
        [Table("What became of hairy", ["it becomes", "such as", "share", "expected"], table)],
    )


ENTRIES = (masking,)

"""Entries on writing: a beam of two, and what a fixed vector cannot copy.

Shapes: B rows, T tokens, N hypotheses, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.generate import Limits, Search, Trace, generate
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.seq2seq import Seq2Seq
from unmask.models.writer import State, Writer
from unmask.objectives.next_token import NextToken
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Series, Table
from unmask.types import Batch, Target

WORDS = ["</s>", "<s>", "I", "we", "like", "saw", "tea", "it"]
NEXT = {
    "<s>": {"I": 0.6, "we": 0.4},
    "I": {"like": 0.4, "saw": 0.35, "</s>": 0.25},
    "we": {"like": 0.9, "saw": 0.1},
    "like": {"tea": 0.7, "it": 0.3},
    "saw": {"it": 0.5, "tea": 0.5},
    "tea": {"</s>": 1.0},
    "it": {"</s>": 1.0},
}
"""Word -> the probabilities of the words after it."""


@dataclass
class LastWord(State):
    """Nothing but the word before counts."""

    width: int
    first: Tensor

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]


class Lattice(Writer):
    """A writer whose next word depends on the word before it, by a table of probabilities."""

    def __init__(self) -> None:
        self.p_VV = torch.zeros(len(WORDS), len(WORDS))
        for word, after in NEXT.items():
            for following, p in after.items():
                self.p_VV[WORDS.index(word), WORDS.index(following)] = p

    def prefill(self, batch: Batch, width: int = 1) -> LastWord:
        return LastWord(width, batch.tokens[:, 0].repeat_interleave(width))

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        return self.p_VV[tokens_N].log()


@entry("A beam of two beside greedy search", code="generate/beam.py", test="lectures/test_writing_entries.py")
def beam_of_two(quick: bool) -> Shown:
    """Greedy search takes the likeliest word at each step. A beam of two keeps the two likeliest texts so far, so that
    a worse first word can lead to a better text (Sutskever et al. 2014, section 3.2). The next word depends on the word
    before it alone here, so that all numbers can be checked by hand.

    `unmask translate --beam-size 4` searches so, and `unmask show beam` draws the tree for a model of your own.
    """
    source, ends = Batch(torch.tensor([[WORDS.index("<s>")]])), WORDS.index("</s>")
    found, rows = {}, []
    for width in (1, 2):
        trace = Trace()
        search = Search(beam_size=width, length_penalty=0, stop="certain", limits=Limits(max_length=6))
        [[best]] = generate(Lattice(), source, search, end=ends, trace=trace)
        found[width] = (" ".join(WORDS[i] for i in best.tokens), torch.tensor(best.log_probability).exp().item())
        texts: list[str] = []
        for node in trace.nodes(0):
            before = "" if node.parent is None else texts[node.parent]
            texts.append(f"{before} {WORDS[node.token]}".strip())
            rows.append((width, node.step, texts[-1], torch.tensor(node.total).exp().item(), node.fate))
    (greedy, p), (wide, better) = found[1], found[2]
    return Shown(
        f"Greedy search writes '{greedy}' with probability {p:.3f}, the beam of two '{wide}' with {better:.3f}.",
        [Table("Candidates of each step", ["beam", "step", "text", "probability", "fate"], rows)],
    )


START, END, LETTERS = 1, 2, 8  # ids 3 to 10 are letters


def copies(rows: int, length: int, generator: torch.Generator) -> Batch:
    """Random strings of one length as sources, and the same strings to write."""
    text_BT = torch.randint(3, 3 + LETTERS, (rows, length), generator=generator)
    start_B1, end_B1 = torch.full((rows, 1), START), torch.full((rows, 1), END)
    answer_BT = torch.cat([text_BT, end_B1], 1)
    target = Target(torch.arange(answer_BT.numel()), answer_BT.flatten())
    return Batch(torch.cat([start_B1, text_BT], 1), source=Batch(answer_BT), targets={"next": target})


def copier(attention: str, steps: int, longest: int) -> EncoderDecoder:
    """A recurrent encoder–decoder that has learned to copy strings of 1 to `longest` letters."""
    config = Seq2Seq.from_dict({"attention": attention, "cell": "gru"})
    model = config.replace(vocabulary=3 + LETTERS, dim=32, hidden=64, dropout=0.0).build(seed=0)
    objective, generator = NextToken(), torch.Generator().manual_seed(0)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        adam.param_groups[0]["lr"] = 5e-3 * (1 - step / steps)
        length = int(torch.randint(1, longest + 1, (1,), generator=generator))
        loss = objective.loss(model, copies(64, length, generator))["next"]
        adam.zero_grad()
        (loss.sum / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    return model.eval()


def copied(model: EncoderDecoder, length: int, rows: int) -> float:
    """Share of unseen strings that greedy search copies without a fault."""
    batch = copies(rows, length, torch.Generator().manual_seed(length))
    assert batch.source is not None
    found = generate(model, batch.source, Search(limits=Limits(max_length=length + 2)), end=END)
    pairs = zip(found, batch.source.tokens.tolist(), strict=True)
    return sum([*one.tokens, END] == wanted for [one], wanted in pairs) / rows


@entry("Copying: what a fixed vector forgets", code="models/seq2seq.py", test="lectures/test_writing_entries.py")
def copying(quick: bool) -> Shown:
    """An encoder–decoder without attention has only its last state, a vector of fixed size, for a source of any length
    (Sutskever et al. 2014). With attention, the decoder looks at the states of all source tokens (Bahdanau et al. 2014;
    here the form of Luong et al. 2015). Both have the same 64 recurrent units and copy random strings over 8 letters.
    """
    steps, longest, rows = (40, 4, 20) if quick else (800, 12, 200)
    lengths = range(1, longest + 1)
    shares = {}
    for name, attention in (("fixed vector", "none"), ("attention", "general")):
        model = copier(attention, steps, longest)
        shares[name] = [copied(model, length, rows) for length in lengths]
    fixed, attending = shares.values()
    return Shown(
        f"Strings of {longest} letters: {fixed[-1]:.0%} are copied without a fault from a fixed vector and "
        f"{attending[-1]:.0%} with attention; of {longest // 2} letters, {fixed[longest // 2 - 1]:.0%} and "
        f"{attending[longest // 2 - 1]:.0%}.",
        [
            Table(
                f"Share of {rows} unseen strings copied without a fault, after {steps:,} steps",
                ["letters", *shares],
                list(zip(lengths, fixed, attending, strict=True)),
            )
        ],
        [
            Chart(
                "Strings that are copied without a fault",
                [Series(name, list(zip(lengths, share, strict=True))) for name, share in shares.items()],
                x="letters",
                y="share",
            )
        ],
    )


ENTRIES = (beam_of_two, copying)

"""Entries on what language models know and are asked: closed-book questions, prompts with examples, captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from unmask.data.bitext.batching import collate_pairs
from unmask.data.files.png import png
from unmask.data.labelled.rows import Row
from unmask.data.pictures import compositions
from unmask.data.pictures.captions import UnreadPicture
from unmask.data.text import subwords
from unmask.data.text.splitters import JOINER
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import plural
from unmask.generate import Limits, Search, generate
from unmask.models.captioner import Captioner
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.t5 import T5
from unmask.objectives import NextToken
from unmask.runs.in_context import InContext, Prompts
from unmask.runs.lectures.entry import Shown, entry
from unmask.runs.lectures.learning import learn
from unmask.runs.translation import origin, systems
from unmask.train.gallery import Captioned, Gallery
from unmask.train.report import Table
from unmask.types import Batch, Loss
from unmask.visualize.captions import lit

Pairs = Sequence[tuple[str, str]]
TEMPLATES = (
    "the capital of {country} is {city} .",
    "{city} is the capital of {country} .",
    "people of {country} travel to their capital {city} .",
)


@entry("Knowledge from pre-training", code="runs/lectures/knowledge.py", test="lectures/test_knowledge_entries.py")
def closed_book(quick: bool) -> Shown:
    """A text-to-text model answers questions without a text to look them up in: what it knows was in the text of its
    pre-training (Roberts et al. 2020). Here, a small T5 learns sentences on invented countries, in which it fills in
    the capital, and then questions on three quarters of the countries. It is asked about the others.
    """
    count, steps = (8, 20) if quick else (32, 80)
    rng = np.random.default_rng(0)
    countries, cities = (_names(count, ending, rng) for ending in ("nia", "ville"))
    both = zip(countries, cities, strict=True)
    asked = [(f"which city is the capital of {country} ?", city) for country, city in both]
    known, new = asked[: count * 3 // 4], asked[count * 3 // 4 :]
    true, other = (_facts(countries, named) for named in (cities, [str(city) for city in rng.permutation(cities)]))
    tokenizer = subwords.train([text for pair in (*true, *asked) for text in pair], 400, "word")
    sizes = {"dim": 64, "heads": 4, "head_dim": 16, "hidden": 128, "encoder_layers": 1, "decoder_layers": 1}
    rows = []
    for name, facts in (("none", []), ("other capitals", other), ("true", true)):
        model = T5(dropout=0.0).replace(**_ids(tokenizer), **sizes).build(seed=0)
        if facts:
            learn(model, loss_of(model, batch_of(tokenizer, facts)), steps, 2e-3)
        learn(model, loss_of(model, batch_of(tokenizer, known)), steps // 2, 1e-3)
        rows.append((name, *(share(answers(model, tokenizer, pairs), pairs) for pairs in (known, new))))
    return Shown(
        f"After pre-training on true sentences, {rows[2][2]:.0%} of the {len(new)} new questions are answered; after "
        f"sentences with other capitals {rows[1][2]:.0%}, without pre-training {rows[0][2]:.0%}.",
        [Table("Share of right answers", ["sentences", "questions of fine-tuning", "new questions"], rows)],
    )


@entry("A prompt with examples", code="runs/in_context.py", test="lectures/test_knowledge_entries.py")
def in_context(quick: bool) -> Shown:
    """A language model is not trained on a task: its prompt has K examples with their answers, then the row to answer,
    and the answer is the candidate with the highest probability (Brown et al. 2020, section 2). `unmask evaluate
    --shots 4` scores a model in this way.
    """
    rows = [
        Row(text="warm and funny", label="1"),
        Row(text="a dull plot", label="0"),
        Row(text="a fine film", label="1"),
        Row(text="far too long", label="0"),
    ]
    template, shown = "{text} = {answer}", []
    for shots in (0, 1, 2):
        prompts = Prompts(InContext(shots=shots, template=template), {"0": "bad", "1": "good"}, rows)
        prompt, candidates = prompts.of(0)
        shown.append((shots, prompt.replace("\n\n", " ⏎ "), " or ".join(repr(one) for one in candidates)))
    return Shown(
        "The examples of a row are drawn by a seed from the other rows; zero shots leave the row alone.",
        [Table("Prompts of one row", ["shots", "prompt (⏎ is an empty line)", "candidates"], shown)],
    )


@entry("Captions of digits on a grid", code="models/captioner.py", test="lectures/test_knowledge_entries.py")
def captions(quick: bool) -> Shown:
    """A ViT reads a picture, the decoder of a Transformer writes its caption, and each word attends to the patches (Xu
    et al. 2015, "Show, Attend and Tell"; here with Transformers on both sides, and a mean over layers and heads). A
    decoder first learns what captions have in common, and writes one for all pictures. So captions are compared whole,
    and those of other pictures must not be right. Here a small model learns a few pictures by heart; `unmask train
    captioner` learns to read new ones.
    """
    stages = (2, 4) if quick else (15, 80)
    pairs = compositions.pairs(5, seed=1)
    tokenizer = origin.learned(systems.find("captioner"), pairs)
    small = Captioner(norm="pre", dropout=0.0, size=84, patch=28, channels=1).replace(
        **_ids(tokenizer),
        **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("hidden", 64))},
        **{"dim": 32, "encoder_heads": 2, "decoder_heads": 2},
    )
    model = small.build(seed=0)
    examples = list(zip(pairs.sources, pairs.targets, strict=True))
    batch, others = batch_of(tokenizer, examples), [*examples[1:], examples[0]]
    rows = []
    for before, steps in zip((0, *stages), stages, strict=False):
        learn(model, loss_of(model, batch), steps - before, 3e-3)
        written = answers(model, tokenizer, examples)
        rows.append((steps, share(written, examples), share(written, others), len(set(written))))
    with torch.no_grad():
        weights_BTS = model.alignment(batch).numpy()
    cells = []
    for item, caption, weights_TS in zip(tokenizer.ids(pairs.sources)[:1], pairs.targets, weights_BTS, strict=False):
        assert isinstance(item, UnreadPicture)
        picture, words = item.read(), tokenizer.target.places(tokenizer.target.ids([caption])[0])
        cells.append(Captioned(png(picture), ["the picture"], caption, None))
        for word, one_S in zip(words, weights_TS, strict=False):
            cells.append(Captioned(png(lit(picture, one_S)), [word.strip(JOINER)], caption, None))
    first, last = rows
    return Shown(
        f"After {first[0]} steps, the model writes {plural(first[3], 'different caption')} for {len(pairs)} pictures, "
        f"and {first[1]:.0%} are exact; after {last[0]} steps {last[3]}, and {last[1]:.0%}.",
        [Table("Exact captions", ["steps", "share", "share for other pictures", "different captions"], rows)],
        [Gallery(f"Patches that each word of '{pairs.targets[0]}' attends to", cells)],
    )


def loss_of(model: EncoderDecoder, batch: Batch) -> Callable[[], Loss]:
    """The loss of a batch of pairs."""
    return lambda: NextToken().loss(model, batch)["next"]


def answers(model: EncoderDecoder, tokenizer: Tokenizer, pairs: Pairs) -> list[str]:
    """The greedy text of each source."""
    batch, search = batch_of(tokenizer, pairs), Search(limits=Limits(max_length=20))
    assert batch.source is not None
    found = generate(model, batch.source, search, end=tokenizer.end)
    return [tokenizer.target.decode(best[0].tokens) for best in found]


def share(texts: Sequence[str], pairs: Pairs) -> float:
    """The share of texts that equal their target."""
    return sum(text == target for text, (_, target) in zip(texts, pairs, strict=True)) / len(pairs)


def batch_of(tokenizer: Tokenizer, pairs: Pairs) -> Batch:
    """Sources and targets as a batch."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    read, written = tokenizer.ids(sources), tokenizer.target.ids(targets)
    return collate_pairs(read, written, tokenizer.pad, tokenizer.start, tokenizer.end)


def _facts(countries: Sequence[str], cities: Sequence[str]) -> list[tuple[str, str]]:
    """Sentences with a blank for the city, and the city (salient span masking: Guu et al. 2020, REALM)."""
    both = list(zip(countries, cities, strict=True))
    return [(template.format(country=country, city="blank"), city) for country, city in both for template in TEMPLATES]


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The fields of a model that its vocabulary decides."""
    return {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}


def _names(count: int, ending: str, rng: np.random.Generator) -> list[str]:
    """Invented names, all different."""
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    pairs = rng.choice(len(syllables) ** 2, count, replace=False)
    return [syllables[i // len(syllables)] + syllables[i % len(syllables)] + ending for i in pairs.tolist()]


ENTRIES = (closed_book, in_context, captions)

"""Every run that has a name, as a function that returns its config; nothing but choices.

The command line looks names up here (`bert-mini` is `bert_mini`) and overrides fields: `unmask pretrain bert-mini
--lr 5e-4`. A variant of your own is a function too: call one of these and `replace` what differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from unmask.errors import UnmaskError, unknown
from unmask.models import albert, electra, gpt, recurrent, t5, transformer_xl
from unmask.models.albert import Albert
from unmask.models.bert import SIZES, Bert, Roberta
from unmask.models.electra import Electra
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.mobilebert import MobileBert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.t5 import T5
from unmask.models.transformer_xl import TransformerXl
from unmask.pretraining import Objectives, Pretraining, Rows
from unmask.recurrent_recipes import elmo as elmo
from unmask.recurrent_recipes import elmo_tiny as elmo_tiny
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def bert_tiny() -> Pretraining:
    """2 layers of 128 (4 M parameters): minutes on a laptop."""
    return _small(_bert("tiny"), _NEXT, lr=3e-3, precision="fp32")


def quickstart() -> Pretraining:
    """The tour: bert-tiny on hidden words alone, on which a few minutes are best spent."""
    return bert_tiny().replace(objectives={"sentences": "none"})


def bert_mini() -> Pretraining:
    """4 layers of 256 (11 M parameters): minutes to hours on a CPU."""
    return _small(_bert("mini"), _NEXT, lr=1e-3)


def bert_small() -> Pretraining:
    """4 layers of 512 (29 M parameters): hours on a CPU, minutes on a GPU."""
    return _small(_bert("small"), _NEXT, lr=7e-4)


def bert_medium() -> Pretraining:
    """8 layers of 512 (41 M parameters): a GPU, or a day of CPU."""
    return _small(_bert("medium"), _NEXT, lr=5e-4)


def bert_base() -> Pretraining:
    """12 layers of 768 (110 M parameters), batch 256, learning rate 1e-4: as published."""
    return _published(_bert("base"), _NEXT)


def bert_large() -> Pretraining:
    """24 layers of 1,024 (340 M parameters), batch 256, learning rate 1e-4: as published."""
    return _published(_bert("large"), _NEXT)


def albert_tiny() -> Pretraining:
    """ALBERT of bert-tiny's width: 2 layers of 128 that share their weights, on hidden words and sentence order."""
    return _small(_albert("tiny"), Objectives(sentences="order"), lr=3e-3, precision="fp32")


def albert_base() -> Pretraining:
    """12 layers of 768 that share their weights (12 M parameters); the optimizer is AdamW in place of LAMB."""
    return _published(_albert("base"), Objectives(sentences="order"))


def electra_tiny() -> Pretraining:
    """ELECTRA of bert-tiny's width, which finds the words that a generator of half that width has replaced."""
    return _small(_electra("tiny"), _REPLACED, lr=2e-3, precision="fp32")


def electra_small() -> Pretraining:
    """12 layers of 256 (14 M parameters), rows of 128 tokens, batch 128, learning rate 5e-4: as published."""
    config = _published(_electra("small").replace(length=128), _REPLACED)
    return config.replace(rows={"batch": 128, "first": None, "micro_batch": 32}, training={"optimizer": {"lr": 5e-4}})


def gpt_tiny() -> Pretraining:
    """A language model as GPT (Radford et al. 2018): 2 layers of 128, minutes on a laptop."""
    return _causal(Gpt().replace(**gpt.SIZES["tiny"]), lr=3e-3, precision="fp32")


def gpt_mini() -> Pretraining:
    """GPT of 4 layers of 256: minutes to hours on a CPU."""
    return _causal(Gpt().replace(**gpt.SIZES["mini"]), lr=1e-3)


def gpt2_tiny() -> Pretraining:
    """GPT-2 (Radford et al. 2019), with its norms before the sub-layers: 2 layers of 128, minutes on a laptop."""
    return _causal(Gpt2().replace(**gpt.SIZES["tiny"]), lr=3e-3, precision="fp32")


def gpt2_mini() -> Pretraining:
    """GPT-2 of 4 layers of 256: minutes to hours on a CPU."""
    return _causal(Gpt2().replace(**gpt.SIZES["mini"]), lr=1e-3)


def gpt2() -> Pretraining:
    """12 layers of 768 (124 M parameters), batch 512, rows of 1,024 tokens: as published, at the rate of GPT.

    Radford et al. 2019, section 2.3, publish neither a rate nor a number of steps: the rate, its warm-up and its cosine
    are those of Radford et al. 2018, section 4.1.
    """
    return Pretraining(
        model=Gpt2(),
        objectives=Objectives(written="next", sentences="none"),
        rows=Rows(batch=512, micro_batch=8, workers=4),
        training=Training(
            steps=500_000,
            optimizer=Optimizer(lr=2.5e-4),
            schedule=Schedule(warmup=2_000, shape="cosine"),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )


def mobilebert() -> Pretraining:
    """24 layers of 512 in bottlenecks of 128 (25 M parameters), from scratch, where the paper has a teacher."""
    return _published(MobileBert(), _NEXT)


def roberta_tiny() -> Pretraining:
    """RoBERTa of bert-tiny's size: hidden words alone, and no row that is short on purpose."""
    return _small(_roberta("tiny"), _FULL, lr=3e-3, precision="fp32")


def roberta_base() -> Pretraining:
    """12 layers of 768, batch 8,192 of 512 tokens, learning rate 6e-4: as published."""
    config = _published(_roberta("base"), _FULL)
    training = {"steps": 500_000, "schedule": {"warmup": 24_000}, "optimizer": _ADAM_ROBERTA}
    return config.replace(rows={"batch": 8_192, "first": None}, training=training)


def transformer_xl_tiny() -> Pretraining:
    """Transformer-XL, which remembers the segments before: 2 layers of 128, minutes on a laptop."""
    return _remembering("tiny", lr=3e-3, precision="fp32")


def transformer_xl_small() -> Pretraining:
    """Transformer-XL of 4 layers of 512: hours on a CPU, minutes on a GPU."""
    return _remembering("small", lr=7e-4)


def transformer_xl_base() -> Pretraining:
    """16 layers of 410, segments of 150 tokens and a memory of as many, batch 60: as released for WikiText-103."""
    return Pretraining(
        model=TransformerXl().replace(**transformer_xl.SIZES["base"]),
        objectives=Objectives(written="segments", sentences="none"),
        rows=Rows(tokens=150, batch=60),
        training=Training(
            steps=200_000,
            optimizer=Optimizer(lr=2.5e-4, weight_decay=0.0, clip=0.25),
            schedule=Schedule(warmup=0, shape="cosine"),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )


def t5_tiny() -> Pretraining:
    """T5 (Raffel et al. 2020): 2 + 2 layers of 128, spans cut out of a text and written: minutes on a laptop."""
    return _spans("tiny", lr=5e-2, precision="fp32")


def t5_mini() -> Pretraining:
    """T5 of 4 + 4 layers of 256: minutes to hours on a CPU."""
    return _spans("mini", lr=3e-2)


def t5_small() -> Pretraining:
    """T5 of 6 + 6 layers of 512 (60 M parameters): batch 128 of 512 tokens, 524,288 steps, as published.

    Raffel et al. 2020, section 3.1.2: Adafactor's rate is 0.01, and after 10,000 steps 1 / sqrt(step).
    """
    return _spans("small", lr=1e-2).replace(
        model={"dropout": 0.1},
        rows={"tokens": 512, "batch": 128, "micro_batch": 16, "workers": 4},
        training={
            "minutes": None,
            "steps": 524_288,
            "schedule": {"warmup": 0, "shape": "constant"},  # what falls is within Adafactor
            "log_every": 100,
            "evaluate_every": 10_000,
            "save_every": 10_000,
        },
    )


def rnn_lm() -> Pretraining:
    """A language model, each token from those before it: a vanilla RNN, for comparison."""
    return _recurrent("tiny", lr=1e-3, cell="rnn")


def gru_lm() -> Pretraining:
    """The same with a GRU (Cho et al. 2014)."""
    return _recurrent("tiny", lr=2e-3, cell="gru")


def lstm_lm() -> Pretraining:
    """The same with an LSTM of 256 (Hochreiter & Schmidhuber 1997): minutes on a laptop."""
    return _recurrent("tiny", lr=2e-3)


def lstm_lm_small() -> Pretraining:
    """2 layers of 512 (Dai & Le 2015 had one of 512 to 1,024): minutes to hours on a CPU."""
    return _recurrent("small", lr=1e-3)


def lstm_autoencoder() -> Pretraining:
    """Read a sequence, write it again (Dai & Le 2015): weights from which a classifier starts."""
    return _recurrent("tiny", lr=2e-3).replace(objectives={"written": "again"})


def bilstm() -> Pretraining:
    """Hidden words from an LSTM that reads from both ends: weights from which a tagger starts."""
    return _recurrent("tiny", lr=2e-3, bidirectional=True).replace(objectives={"written": "none"})


def continued() -> Pretraining:
    """Go on from a folder (--from) on the text of a domain: gently, with the folder's own dropout and objectives.

    A second phase of pre-training on the text of a domain, or of the task itself (Gururangan et al. 2020): rows as
    long as the model takes, and a rate far below that of fresh weights, which would undo what they know.
    """
    return Pretraining(
        objectives=Objectives(sentences="auto"),
        rows=Rows(batch=32, micro_batch=8, heldout=64),
        training=Training(
            minutes=30.0,
            optimizer=Optimizer(lr=5e-5),
            schedule=Schedule(warmup=0.06),
        ),
    )


def _bert(size: str) -> Bert:
    return Bert().replace(**SIZES[size])


def _albert(size: str) -> Albert:
    return Albert().replace(**albert.SIZES[size])


def _electra(size: str) -> Electra:
    return Electra().replace(**electra.SIZES[size])


def _roberta(size: str) -> Roberta:
    return Roberta().replace(**SIZES[size])


_NEXT = Objectives(sentences="next")
_FULL = Objectives(sentences="none", short=0.0)
_REPLACED = Objectives(sentences="none", replaced=True)
_ADAM_ROBERTA = {"lr": 6e-4, "betas": (0.9, 0.98), "clip": None}  # Liu et al. 2019, appendix, table 9


def _small(model: Bert, objectives: Objectives, lr: float, precision: Literal["auto", "fp32"] = "auto") -> Pretraining:
    """Short runs on little text: higher rates, and no dropout (too few passes to learn the text by heart).

    The published initialisation suits a width of 768; narrower models start from the same scale of activations
    (std ∝ dim^-0.5), which brings them past word frequencies sooner. The narrowest gain nothing from bf16.
    """
    std = round(0.02 * (768 / model.dim) ** 0.5, 3)
    return Pretraining(
        model=model.replace(length=128, dropout=0.0, attention_dropout=0.0, std=std, positions="sinusoids"),
        objectives=objectives,
        rows=Rows(batch=32, first=32, first_share=0.6),
        training=_short(lr, precision),
    )


def _causal(model: Gpt, lr: float, precision: Literal["auto", "fp32"] = "auto") -> Pretraining:
    """Short runs on little text, from the same scale of activations as the small BERTs, and without dropout."""
    std = round(0.02 * (768 / model.dim) ** 0.5, 3)
    rates = {"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}
    return Pretraining(
        model=model.replace(length=128, std=std, **rates),
        objectives=Objectives(written="next", sentences="none"),
        rows=Rows(batch=32),
        training=_short(lr, precision),
    )


def _remembering(size: str, lr: float, precision: Literal["auto", "fp32"] = "auto") -> Pretraining:
    """Short runs on little text; a segment is as long as the memory."""
    model = TransformerXl().replace(**transformer_xl.SIZES[size])
    return Pretraining(
        model=model.replace(dropout=0.0, std=round(0.02 * (768 / model.dim) ** 0.5, 3)),
        objectives=Objectives(written="segments", sentences="none"),
        rows=Rows(tokens=model.memory, batch=32),
        training=_short(lr, precision),
    )


def _spans(size: str, lr: float, precision: Literal["auto", "fp32"] = "auto") -> Pretraining:
    """Short runs on little text, without dropout. The published initialisation fits any width, and is of weights so
    different in size that they want Adafactor: with AdamW ten times as many steps do not reach as far."""
    return Pretraining(
        model=T5(dropout=0.0).replace(**t5.SIZES[size]),
        objectives=Objectives(written="spans", sentences="none", short=0.0),
        rows=Rows(tokens=128, batch=32),
        training=_short(lr, precision).replace(
            optimizer=Optimizer(algorithm="adafactor", lr=lr, weight_decay=0.0, clip=None)
        ),
    )


def _recurrent(size: str, lr: float, **fields: Any) -> Pretraining:
    """Short runs on little text. A row of 128 tokens costs 128 steps that wait for one another, so rows are short."""
    return Pretraining(
        model=RecurrentNetwork(dropout=0.0).replace(**recurrent.SIZES[size], **fields),
        objectives=Objectives(written="next", sentences="none"),
        rows=Rows(tokens=128, batch=32),
        training=_short(lr, "fp32", warmup=0.02),
    )


def _short(lr: float, precision: Literal["auto", "fp32"], warmup: float = 0.06) -> Training:
    """Half an hour at a peak rate."""
    return Training(minutes=30.0, precision=precision, optimizer=Optimizer(lr=lr), schedule=Schedule(warmup=warmup))


def _published(model: Bert, objectives: Objectives) -> Pretraining:
    """Devlin et al. 2018, appendix A.2: 1,000,000 steps, of which 10,000 warm up; 128 tokens a row, then 512."""
    return Pretraining(
        model=model,
        objectives=objectives,
        rows=Rows(batch=256, first=128, micro_batch=16, workers=4),
        training=Training(
            steps=1_000_000,
            optimizer=Optimizer(lr=1e-4),
            schedule=Schedule(warmup=0.01),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )


def names() -> dict[str, str]:
    """Recipe name -> its first line of documentation, in the order in which they are written, this page first."""
    found = {
        name: function
        for name, function in globals().items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and function.__annotations__ == {"return": "Pretraining"}  # a recipe is not asked anything
    }
    order = sorted(found, key=lambda name: (found[name].__module__ != __name__, found[name].__code__.co_firstlineno))
    return {name.replace("_", "-"): (inspect.getdoc(found[name]) or "").split("\n", 1)[0] for name in order}


def find(name: str) -> Pretraining:
    """The config of a recipe by its name. Raises UnmaskError naming the nearest for one that does not exist."""
    if name not in names():
        raise unknown("recipe", name, names())
    function: Callable[[], Pretraining] = globals()[name.replace("-", "_")]
    return function()


def choose(name: str | None, start: str | None = None, run: Mapping[str, Any] | None = None) -> tuple[str, Pretraining]:
    """Recipe and config of a run: as it was saved where it is resumed, else the recipe, from `start` where given.

    start  model folder to go on from; it needs no recipe
    run    run.json of the run that is resumed; empty or None for a new one

    Raises UnmaskError where nothing says which run is meant, and where the two disagree on the recipe or the start.
    """
    facts = dict(run or {})
    recipe = name or facts.get("recipe") or ("continued" if start or facts.get("origin") else None)
    if recipe is None:
        raise UnmaskError(f"Say which run: one of {', '.join(names())}; or --from FOLDER, to go on from a model.")
    config = find(recipe)
    if "config" in facts:
        if facts.get("recipe") and recipe != facts["recipe"]:  # a run of one's own making has no recipe
            raise UnmaskError(f"This run is one of '{facts['recipe']}', not '{recipe}': leave the recipe out.")
        config = config.resumed(facts)
        if start is not None and start != config.start:
            raise UnmaskError(
                f"This run started from {config.start or 'fresh weights'}, not {start}: leave --from out."
            )
        return recipe, config
    if start is not None:
        return recipe, config.starting_from(start)
    if recipe == "continued":
        raise UnmaskError("The recipe 'continued' goes on from a model: say from which, with --from FOLDER.")
    return recipe, config

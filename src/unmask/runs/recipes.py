"""Every run that has a name, as a function that returns its config; nothing but choices.

The command line looks names up here (`bert-mini` is `bert_mini`), then in `writing_recipes.py`,
`recurrent_recipes.py`, `picture_recipes.py`, `recording_recipes.py` and `signal_recipes.py`, and overrides fields:
`unmask pretrain bert-mini --lr 5e-4`. A variant of your own is a function too: call one of these and `replace` what
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from unmask.config import Config, flatten
from unmask.errors import UnmaskError
from unmask.models import albert, electra
from unmask.models.albert import Albert
from unmask.models.bert import SIZES, Bert, Roberta
from unmask.models.electra import Electra
from unmask.models.ib_bert import SIZES as IB_SIZES
from unmask.models.ib_bert import IbBert
from unmask.models.mobilebert import SIZES as MOBILE_SIZES
from unmask.models.mobilebert import MobileBert
from unmask.models.modernbert import SIZES as MODERN_SIZES
from unmask.models.modernbert import ModernBert
from unmask.objectives import (
    MaskedLMConfig,
    NextSentenceConfig,
    ObjectiveConfig,
    ReplacedTokenConfig,
    SentenceOrderConfig,
    SingleRuns,
)
from unmask.objectives.registry import FolderSentences
from unmask.runs import (
    catalogue,
    picture_recipes,
    recording_recipes,
    recurrent_recipes,
    signal_recipes,
    writing_recipes,
)
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short
from unmask.train.optim import Optimizer, Schedule, check_rate
from unmask.train.trainer import Training


def bert_tiny() -> Pretraining:
    """2 layers of 128 (4 M parameters): minutes on a laptop."""
    return _small(_bert("tiny"), _NEXT, lr=3e-3, algorithm="muon")


def quickstart() -> Pretraining:
    """modern-tiny for a few minutes of a slow processor: masked tokens in short rows, from warm token vectors.

    Steps are small and rows short throughout, a quarter of the tokens is masked, and token vectors start from what
    stands beside the tokens: that learns most in two to four minutes (docs/log.md). Hours want `modern-tiny`.
    """
    config = modern_tiny().replace(objective={"rate": 0.25}, warm_start="ppmi")
    return config.replace(rows={"tokens": 32, "first": None, "batch": 32, "heldout": 512})


def bert_mini() -> Pretraining:
    """4 layers of 256 (11 M parameters): minutes to hours on a CPU."""
    return _small(_bert("mini"), _NEXT, lr=2e-3, algorithm="muon")


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


def multilingual_tiny() -> Pretraining:
    """bert-tiny on corpora of several languages, of one vocabulary: small ones are raised as multilingual BERT does.

    Sizes to the power of 0.7 (multilingual.md of google-research's BERT, where the vocabulary has 110,000 pieces).
    """
    return bert_tiny().replace(rows={"alpha": 0.7})


def albert_tiny() -> Pretraining:
    """ALBERT of bert-tiny's width: 2 layers of 128 that share their weights (2 M parameters), on masked tokens and
    sentence order."""
    return _small(_albert("tiny"), _ORDER, lr=3e-3, algorithm="muon")


def albert_base() -> Pretraining:
    """12 layers of 768 that share their weights (12 M parameters); the optimizer is AdamW in place of LAMB."""
    return _published(_albert("base"), _ORDER)


def albert_large() -> Pretraining:
    """24 layers of 1,024 that share their weights (18 M parameters): the published size, trained as albert-base."""
    return _published(_albert("large"), _ORDER)


def albert_xlarge() -> Pretraining:
    """24 layers of 2,048 that share their weights (59 M parameters): the published size, trained as albert-base."""
    return _published(_albert("xlarge"), _ORDER)


def albert_xxlarge() -> Pretraining:
    """12 layers of 4,096 that share their weights (223 M parameters): the published size, trained as albert-base."""
    return _published(_albert("xxlarge"), _ORDER)


def electra_tiny() -> Pretraining:
    """ELECTRA of bert-tiny's width, which finds the words that a generator of half that width has replaced."""
    return _small(_electra("tiny"), _REPLACED, lr=2e-3)


def electra_small() -> Pretraining:
    """12 layers of 256 (14 M parameters), rows of 128 tokens, batch 128, learning rate 5e-4: as published."""
    config = _published(_electra("small").replace(length=128), _REPLACED)
    return config.replace(rows={"batch": 128, "first": None, "micro_batch": 32}, training={"optimizer": {"lr": 5e-4}})


def electra_base() -> Pretraining:
    """12 layers of 768 (110 M parameters), batch 256 of 512 tokens, learning rate 2e-4: as published."""
    training = {"steps": 766_000, "schedule": {"warmup": 10_000}, "optimizer": {"lr": 2e-4}}
    return _published(_electra("base"), _REPLACED).replace(rows={"first": None}, training=training)


def electra_large() -> Pretraining:
    """24 layers of 1,024 (335 M parameters), a quarter of tokens masked, batch 2,048 of 512 tokens: as published."""
    training = {"steps": 400_000, "schedule": {"warmup": 10_000}, "optimizer": {"lr": 2e-4}}
    config = _published(_electra("large"), ReplacedTokenConfig(masked=MaskedLMConfig(rate=0.25)))
    return config.replace(rows={"batch": 2_048, "first": None}, training=training)


def mobilebert_tiny() -> Pretraining:
    """MobileBERT of bert-tiny's width: 4 layers of 128 in bottlenecks of 64, from scratch: minutes on a laptop."""
    return _small(MobileBert().replace(**MOBILE_SIZES["tiny"]), _NEXT, lr=3e-3)


def mobilebert() -> Pretraining:
    """24 layers of 512 in bottlenecks of 128 (25 M parameters), from scratch, where the paper has a teacher."""
    return _published(MobileBert(), _NEXT)


def ib_bert_tiny() -> Pretraining:
    """The teacher of mobilebert-tiny: 4 layers of 128, which are 256 wide inside."""
    return _small(IbBert().replace(**IB_SIZES["tiny"]), _NEXT, lr=1e-3)


def ib_bert() -> Pretraining:
    """MobileBERT's teacher: 24 layers of 512, which are 1,024 wide inside (293 M parameters)."""
    return _published(IbBert(), _NEXT)


def roberta_tiny() -> Pretraining:
    """RoBERTa of bert-tiny's size (7 M parameters): masked tokens alone, and no row that is short on purpose."""
    return _small(_roberta("tiny"), _FULL, lr=3e-3, algorithm="muon")


def roberta_base() -> Pretraining:
    """12 layers of 768 (125 M parameters), batch 8,192 of 512 tokens, learning rate 6e-4: as published."""
    config = _published(_roberta("base"), _FULL)
    training = {"steps": 500_000, "schedule": {"warmup": 24_000}, "optimizer": _ADAM_ROBERTA}
    return config.replace(rows={"batch": 8_192, "first": None}, training=training)


def modern_tiny() -> Pretraining:
    """ModernBERT of bert-tiny's width: 3 layers of 128 (7 M parameters): minutes on a laptop."""
    return _modern("tiny", lr=3e-3, algorithm="muon")


def modern_mini() -> Pretraining:
    """ModernBERT of bert-mini's width: 6 layers of 256 (16 M parameters): minutes to hours on a CPU."""
    return _modern("mini", lr=2e-3, algorithm="muon")


def modern_small() -> Pretraining:
    """ModernBERT of bert-small's width: 6 layers of 512 (40 M parameters): hours on a CPU, minutes on a GPU."""
    return _modern("small", lr=7e-4)


def modernbert_base() -> Pretraining:
    """22 layers of 768 (149 M parameters), batch 4,608 of 1,024 tokens, learning rate 8e-4: as published, with AdamW.

    The first of three phases (Warner et al. 2024, table 3): StableAdamW became AdamW, and the batch
    does not grow. For rows of 8,192 tokens, continue with `--global-base 160000 --length 8192`.
    """
    return _published_modern("base", lr=8e-4, batch=4_608, steps=364_000, warmup=636)


def modernbert_large() -> Pretraining:
    """28 layers of 1,024 (395 M parameters), batch 4,928 of 1,024 tokens, learning rate 5e-4: as modernbert-base.

    The paper starts from the weights of the smaller model, and lowers the rate to 5e-5 after these steps.
    """
    return _published_modern("large", lr=5e-4, batch=4_928, steps=178_000, warmup=396)


def continued() -> Pretraining:
    """Continue from a folder (--from) on the text of a domain: gently, with the folder's own dropout and objectives.

    A second phase of pre-training on the text of a domain, or of the task itself (Gururangan et al. 2020): rows as
    long as the model takes, and a rate far below that of fresh weights, which would undo what they know.
    """
    return Pretraining(
        objective=MaskedLMConfig(sentences=FolderSentences()),
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


_NEXT = MaskedLMConfig(sentences=NextSentenceConfig())
_ORDER = MaskedLMConfig(sentences=SentenceOrderConfig())
_FULL = MaskedLMConfig(sentences=SingleRuns(short=0.0))
_MODERN = MaskedLMConfig(rate=0.3, sentences=SingleRuns(short=0.0))
_REPLACED = ReplacedTokenConfig()
_ADAM_ROBERTA = {"lr": 6e-4, "betas": (0.9, 0.98), "clip": None}  # Liu et al. 2019, appendix, table 9


def _small(
    model: Bert, objective: ObjectiveConfig, lr: float, algorithm: Literal["auto", "muon"] = "auto"
) -> Pretraining:
    """Short runs on little text: higher rates, and no dropout (too few passes to learn the text by heart).

    The published initialisation suits a width of 768; narrower models start from the same scale of activations
    (std ∝ dim^-0.5), which brings them past word frequencies sooner. Some learn by Muon (decision 22), and at a
    higher rate: AdamW wants 1e-3 at four layers of 256.
    """
    std = round(0.02 * (768 / model.dim) ** 0.5, 3)
    return Pretraining(
        model=model.replace(length=128, dropout=0.0, attention_dropout=0.0, std=std, positions="sinusoids"),
        objective=objective,
        rows=Rows(batch=32, first=32, first_share=0.6),
        training=short(lr).replace(optimizer={"algorithm": algorithm}),
    )


def _published(model: Bert | ModernBert, objective: ObjectiveConfig) -> Pretraining:
    """Devlin et al. 2018, appendix A.2: 1,000,000 steps, 10,000 of them warm-up; 128 tokens a row, then 512."""
    return Pretraining(
        model=model,
        objective=objective,
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


def _modern(size: str, lr: float, algorithm: Literal["auto", "muon"] = "auto") -> Pretraining:
    """As `_small`: short runs, and the same scale of activations; 30 % of the tokens are masked, as published."""
    model = ModernBert().replace(**MODERN_SIZES[size], length=128)
    return Pretraining(
        model=model.replace(std=round(0.02 * (768 / model.dim) ** 0.5, 3)),
        objective=_MODERN,
        rows=Rows(batch=32, first=32, first_share=0.6),
        training=short(lr).replace(optimizer={"algorithm": algorithm}),
    )


def _published_modern(size: str, lr: float, batch: int, steps: int, warmup: int) -> Pretraining:
    """Warner et al. 2024, table 3, first phase: the rate is constant after its warm-up."""
    config = _published(ModernBert().replace(**MODERN_SIZES[size], length=1_024, global_base=10_000.0), _MODERN)
    optimizer = {"lr": lr, "betas": (0.9, 0.98), "weight_decay": 1e-5}
    schedule = {"warmup": warmup, "shape": "constant"}
    training = {"steps": steps, "optimizer": optimizer, "schedule": schedule}
    return config.replace(rows={"batch": batch, "first": None}, training=training)


def _recipes() -> dict[str, Callable[[], Pretraining]]:
    """Name -> recipe, in the order in which they are written, this page first."""
    others = (writing_recipes, recurrent_recipes, picture_recipes, recording_recipes, signal_recipes)
    return catalogue.functions((globals(), *map(vars, others)), "Pretraining")


def names() -> dict[str, str]:
    """Recipe name -> the first paragraph of its documentation, in the order in which they are written."""
    return catalogue.introductions(_recipes())


def find(name: str) -> Pretraining:
    """The config of a recipe by its name. Raises UnmaskError, which names the nearest, if it does not exist."""
    found: Pretraining = catalogue.find(_recipes(), name, "recipe")
    return found


def choose(name: str | None, start: str | None = None, run: Mapping[str, Any] | None = None) -> tuple[str, Pretraining]:
    """Recipe and config of a run: as it was saved where it is resumed, else the recipe, from `start` where given.

    start  model folder to continue from; it needs no recipe
    run    run.json of the run that is resumed; empty or None for a new one

    Raises UnmaskError where nothing says which run is meant, and where the two disagree on the recipe or the start.
    """
    facts = dict(run or {})
    recipe = name or facts.get("recipe") or ("continued" if start or facts.get("origin") else None)
    if recipe is None:
        raise UnmaskError(f"Say which run: one of {', '.join(names())}; or --from FOLDER, to continue from a model.")
    config = find(recipe)
    if "config" in facts:
        if facts.get("recipe") and recipe != facts["recipe"]:  # a run started from Python has no recipe
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
        raise UnmaskError("The recipe 'continued' continues from a model: say from which, with --from FOLDER.")
    return recipe, config


AnyConfig = TypeVar("AnyConfig", bound=Config)


def timed(config: AnyConfig, given: Mapping[str, Any]) -> AnyConfig:
    """The config without steps and minutes if one of them is given: it replaces that of the recipe."""
    lengths = {"steps", "minutes", "training.steps", "training.minutes", "max_steps", "max_update", "num_train_steps"}
    if lengths & {name.replace("-", "_") for name in flatten(given)}:
        return config.override({"steps": None, "minutes": None})
    return config


def overridden(config: Pretraining, changes: Mapping[str, Any], *, resumed: bool = False) -> Pretraining:
    """The config with given fields. Raises UnmaskError for a field that does not exist, and for changes that do not fit
    the objective of `start` or, unless the run is resumed, the learning rate."""
    usual = timed(config, changes)
    config = usual.override(changes, batch_size="rows.batch")
    if config.start is not None:
        config.objective.check_changes(usual.objective, config.start)
    if not resumed:
        check_rate(usual.training.optimizer, config.training.optimizer, changes)
    return config

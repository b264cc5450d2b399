"""The teacher of a pre-training run: whether it fits, and the initial weights of its student."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import ENCODER_DECODER
from unmask.models.model import Model
from unmask.objectives import Objective, TeacherConfig, WithTeacher
from unmask.objectives.distillation import Phases, normalised, squared
from unmask.runs.pretraining.config import Pretraining, tokens_of
from unmask.runs.pretraining.continued import STARTED, TRAINED, opened
from unmask.runs.transfer.strategy import depths

DEPTH = ("layers", "encoder_layers", "decoder_layers", "length")
"""Fields in which a student that inherits may differ from its teacher, besides TRAINED and STARTED."""


def with_teacher(config: Pretraining, learned: Objective, processor: Processor[Any]) -> Objective:
    """The objective, with the teacher of the config if it has one.

    Raises UnmaskError for a folder that cannot be the teacher of this run: of another kind of model, with another
    tokenizer, or with too few positions for the rows.
    """
    settings = config.distillation
    if settings.teacher is None:
        given = [name for name, value in settings.places().items() if value != TeacherConfig().places()[name]]
        if given:
            raise UnmaskError(f"--{given[0]} needs a teacher: add --teacher FOLDER, or leave it out.")
        return learned
    if settings.transfer != "auxiliary" and settings.states == settings.attention == 0:
        raise UnmaskError(f"--transfer {settings.transfer} has nothing to learn from: set --states or --attention.")
    if not 0 < settings.transfer_share < 1:
        raise UnmaskError(
            f"The share of the steps for a transfer must be between 0 and 1, not {settings.transfer_share}."
        )
    if settings.inherit and config.start is not None:
        raise UnmaskError(
            "A model that continues from a folder has its weights already: leave --from or --inherit out."
        )
    if settings.attention > 0 and config.training.recompute:
        raise UnmaskError("--attention needs attention weights that --recompute does not keep: leave one of them out.")
    teacher = opened(settings.teacher)
    if (teacher.kind is ENCODER_DECODER) != ("encoder-decoder" in config.model.offers):
        raise UnmaskError("Only a T5 can teach a T5, and it can teach no other model: choose another --teacher.")
    if teacher.require_processor(settings.teacher).fingerprint != processor.fingerprint:
        raise UnmaskError(
            f"The corpus was not built with the tokenizer of the teacher; build it again with: unmask corpus build "
            f"--tokenizer {settings.teacher} --data ... --out ..."
        )
    tokens, positions = tokens_of(config), teacher.model.positions
    if positions is not None and tokens > positions:
        raise UnmaskError(
            f"Rows of {tokens} tokens do not fit the teacher, which has {positions} positions: set --rows.tokens "
            f"{positions} or less."
        )
    weights = {"weight": settings.weight, "states": settings.states, "attention": settings.attention}
    return WithTeacher(
        learned,
        teacher.model,
        temperature=settings.temperature,
        difference=normalised if settings.normalised_states else squared,
        phases=Phases(settings.transfer, settings.transfer_share),
        **weights,
    )


def prepare(model: Model, learned: Objective, settings: TeacherConfig, *, continued: bool = False) -> str:
    """Check a student against the teacher in `learned`, if there is one, and let it inherit if the settings say so; a
    student that continues from a folder has its weights. Returns a sentence on heads that stay new in a student that
    inherits, else "".

    Raises UnmaskError if the two do not fit.
    """
    if not isinstance(learned, WithTeacher):
        return ""
    if settings.states > 0:
        _check_layers(model, learned.teacher, "--states")
        _check_sizes(model.config.width, learned.teacher.config.width, "--states")
    if settings.attention > 0:
        _check_layers(model, learned.teacher, "--attention")
        heads, teacher_heads = (int(getattr(one.config, "heads", 0)) for one in (model, learned.teacher))
        _check_sizes(heads, teacher_heads, "--attention")
    if settings.inherit:
        return inherit(model, learned.teacher)
    return inherit_ends(model, learned.teacher) if learned.phases.apart and not continued else ""


def _check_layers(model: Model, teacher: Model, flag: str) -> None:
    for one, who in ((model, "student"), (teacher, "teacher")):
        if one.transformer is None:  # other models run step by step, or segment by segment
            raise UnmaskError(
                f"{flag} compares models with one stack of layers, such as a BERT or a GPT; the {who} is a "
                f"{type(one.config).__name__}: leave {flag} at 0."
            )


def _check_sizes(student: int, teacher: int, flag: str) -> None:
    if student != teacher:
        what, alike = ("numbers in a hidden state", "width") if flag == "--states" else ("heads", "number of heads")
        raise UnmaskError(
            f"The student has {student} {what} and the teacher {teacher}: leave {flag} at 0, or use a student of the "
            f"same {alike}."
        )


def inherit(model: Model, teacher: Model) -> str:
    """Give a student, in place, the embedding, the heads and the pooler of its teacher. Layer m of its M layers gets
    layer floor(m N / M) of the teacher's N (DistilBERT takes one layer out of two). Returns a sentence on heads that
    stay new, else "".

    Raises UnmaskError if the two differ in more than their depth.
    """
    own, other = model.config.to_dict(), teacher.config.to_dict()
    if type(model.config) is not type(teacher.config):
        unlike, kinds = "the kind", (type(model.config).__name__, type(teacher.config).__name__)
    else:
        names = own.keys() - {*TRAINED, *STARTED, *DEPTH}
        unlike = min((name for name in names if own[name] != other[name]), default="")
        kinds = (str(own.get(unlike)), str(other.get(unlike)))
    if unlike:
        raise UnmaskError(
            f"A student that inherits may differ from its teacher only in depth, but {unlike} is {kinds[0]}, and "
            f"{kinds[1]} in the teacher: use the teacher's, or set --inherit false."
        )
    stored = teacher.state_dict()
    depths, heights = _depths(model.state_dict()), _depths(stored)
    for stack, depth in depths.items():
        if depth > heights[stack]:
            of = f" in its {stack.partition('.')[0]}" if len(depths) > 1 else ""
            raise UnmaskError(f"A student of {depth} layers{of} cannot inherit from a teacher of {heights[stack]}.")
    longest = teacher.positions
    if longest is not None and (model.positions is None or model.positions > longest):
        raise UnmaskError(
            f"A student with more positions than its teacher cannot inherit them: set --length {longest} or less."
        )
    given = {}
    for name, x in model.state_dict().items():
        stack, number, rest = _of_block(name)
        source = f"{stack}{number * heights[stack] // depths[stack]}.{rest}" if stack else name
        if source in stored:
            given[name] = stored[source][: len(x)]  # the student may have fewer positions, and no unused entries
    model.load_state_dict(given, strict=False)
    return _of_new_heads(model, teacher)


def inherit_ends(model: Model, teacher: Model) -> str:
    """Give a student, in place, the embedding, the heads and the pooler of its teacher; its layers stay. Returns a
    sentence on heads that stay new, else "".

    Raises UnmaskError if the two have other sizes there.
    """
    own = {name: x for name, x in model.state_dict().items() if not _of_block(name)[0]}
    stored = {name: x[: len(own[name])] for name, x in teacher.state_dict().items() if name in own}
    for name, x in stored.items():
        if x.shape != own[name].shape:
            raise UnmaskError(
                f"A joint or progressive transfer starts from the teacher's embedding and heads, but {name} has the "
                f"shape {list(own[name].shape)}, and {list(x.shape)} in the teacher: use its sizes, or --transfer "
                "auxiliary."
            )
    model.load_state_dict(stored, strict=False)
    return _of_new_heads(model, teacher)


class Stages:
    """Which weights of a student are trained, for `unmask.train.trainer.Trainer`: all of them, except while layers
    learn from layers. Then these layers alone are, and the embedding with the first one: the norm of the teacher's
    embedding may be of another kind."""

    def __init__(self, model: Model, phases: Phases) -> None:
        self.model, self.phases, self.levels = model, phases, depths(model)

    def scale(self, name: str) -> float:
        return 1.0

    def on_step(self, step: int, total: int) -> None:
        """Freeze and unfreeze the weights for update number `step` (from 0) of `total`."""
        apart, depth = self.phases.only_layers(step, total), len(self.model.blocks)
        chosen = self.phases.layer(step, total, depth)
        for name, level in self.levels.items():
            layer = max(0, depth - level)  # level 0 is that of the heads
            trained = not apart or (level > 0 and chosen in (None, layer))
            self.model.get_parameter(name).requires_grad_(trained)


def stages(model: Model, learned: Objective) -> Stages | None:
    """What freezes weights of a student, if its layers learn in a phase of their own."""
    if isinstance(learned, WithTeacher) and learned.phases.apart:
        return Stages(model, learned.phases)
    return None


def _of_new_heads(model: Model, teacher: Model) -> str:
    new = [name for name in model.heads if name not in teacher.heads]
    return f"New heads, which the teacher does not have: {', '.join(new)}." if new else ""


def _depths(names: Iterable[str]) -> dict[str, int]:
    """Prefix of each stack in the names of parameters -> its number of blocks."""
    found: dict[str, int] = {}
    for stack, number, _ in map(_of_block, names):
        if stack:
            found[stack] = max(found.get(stack, 0), number + 1)
    return found


def _of_block(name: str) -> tuple[str, int, str]:
    """The name of a parameter of a block as (prefix of the stack, number of the block, rest); ("", 0, name) for other
    parameters."""
    found = re.match(r"((?:stack|encoder|decoder)\.blocks\.)(\d+)\.(.*)", name)
    return (found[1], int(found[2]), found[3]) if found else ("", 0, name)

"""A teacher beside a pre-training run: does it fit, and what a student begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import ENCODER_DECODER
from unmask.models.model import Model
from unmask.objectives import Objective, TeacherConfig, WithTeacher
from unmask.runs.pretraining.config import Pretraining, tokens_of
from unmask.runs.pretraining.continued import STARTED, TRAINED, opened

DEPTH = ("layers", "encoder_layers", "decoder_layers", "length")
"""Fields of a model in which a student that inherits may differ, beside those of training and of fresh weights."""


def with_teacher(config: Pretraining, learned: Objective, processor: Processor[Any]) -> Objective:
    """What is learned, with the teacher of the config, where it has one.

    Raises UnmaskError for a folder that is no teacher of this run: of another kind, with another tokenizer, without the
    head, or too short for the rows.
    """
    asked = config.distillation
    if asked.teacher is None:
        given = [name for name, value in asked.places().items() if value != TeacherConfig().places()[name]]
        if given:
            raise UnmaskError(f"--{given[0]} is of a teacher: say which, with --teacher FOLDER, or leave it out.")
        return learned
    if asked.inherit and config.start is not None:
        raise UnmaskError(
            "A model that continues from a folder has its weights already: leave out --from, or --inherit."
        )
    if asked.attention > 0 and config.training.recompute:
        raise UnmaskError("--attention looks into layers that --recompute does not keep: leave one of them out.")
    teacher = opened(asked.teacher)
    if (teacher.kind is ENCODER_DECODER) != ("encoder-decoder" in config.model.offers):
        raise UnmaskError("A T5 learns from a T5, and other models from others: take another --teacher.")
    if teacher.require_processor(asked.teacher).fingerprint != processor.fingerprint:
        raise UnmaskError(
            f"The corpus was not built with the tokenizer of the teacher; build it again with: unmask corpus build "
            f"--tokenizer {asked.teacher} --data ... --out ..."
        )
    tokens, positions = tokens_of(config), teacher.model.positions
    if positions is not None and tokens > positions:
        raise UnmaskError(
            f"Rows of {tokens} tokens do not fit the teacher, which has {positions} positions; set --rows.tokens "
            f"{positions} or less."
        )
    weights = {"weight": asked.weight, "states": asked.states, "attention": asked.attention}
    return WithTeacher(learned, teacher.model, temperature=asked.temperature, **weights)


def prepare(model: Model, learned: Objective, asked: TeacherConfig) -> str:
    """Make a student ready for its teacher, where `learned` has one, and say what of it is new though it inherits.

    Raises UnmaskError where the two do not fit.
    """
    if not isinstance(learned, WithTeacher):
        return ""
    if asked.states > 0:
        _check_layers(model, learned.teacher, "--states")
        _check_sizes(model.config.width, learned.teacher.config.width, "--states")
    if asked.attention > 0:
        _check_layers(model, learned.teacher, "--attention")
        own, other = (int(getattr(one.config, "heads", 0)) for one in (model, learned.teacher))
        _check_sizes(own, other, "--attention")
    return inherit(model, learned.teacher) if asked.inherit else ""


def _check_layers(model: Model, teacher: Model, flag: str) -> None:
    for one, who in ((model, "student"), (teacher, "teacher")):
        if one.transformer is None:  # others run a layer step by step, or segment by segment
            raise UnmaskError(
                f"{flag} compares models of one stack of layers, such as a BERT or a GPT; the {who} is a "
                f"{type(one.config).__name__}: leave {flag} at 0."
            )


def _check_sizes(own: int, other: int, flag: str) -> None:
    if own != other:
        what, alike = ("numbers in a hidden state", "width") if flag == "--states" else ("heads", "number of heads")
        raise UnmaskError(
            f"The student has {own} {what} and the teacher {other}: leave {flag} at 0, or take a student of the same "
            f"{alike}."
        )


def inherit(model: Model, teacher: Model) -> str:
    """Give a student, in place, the embedding, the heads and the pooler of its teacher, and layer floor(m N / M) of its
    N for each layer m of M (DistilBERT takes one layer out of two). Returns a sentence on heads that stay new.

    Raises UnmaskError where they differ in more than their depth.
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
            f"A student that inherits differs from its teacher in depth alone: {unlike} is {kinds[0]} here, and "
            f"{kinds[1]} there. Take the teacher's, or set --inherit false."
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
            f"A student of longer rows than its teacher's cannot inherit its positions: set --length {longest} or less."
        )
    given = {}
    for name, x in model.state_dict().items():
        stack, number, rest = _of_block(name)
        source = f"{stack}{number * heights[stack] // depths[stack]}.{rest}" if stack else name
        if source in stored:
            given[name] = stored[source][: len(x)]  # positions may be fewer, and entries without a meaning left out
    model.load_state_dict(given, strict=False)
    new = [name for name in model.heads if name not in teacher.heads]
    return f"New heads, which the teacher has not: {', '.join(new)}." if new else ""


def _depths(names: Iterable[str]) -> dict[str, int]:
    """Of each stack, as it stands in names of parameters, how many blocks it has."""
    found: dict[str, int] = {}
    for stack, number, _ in map(_of_block, names):
        if stack:
            found[stack] = max(found.get(stack, 0), number + 1)
    return found


def _of_block(name: str) -> tuple[str, int, str]:
    """The name of a parameter of a block in three parts, around its number; ("", 0, name) for others."""
    found = re.match(r"((?:stack|encoder|decoder)\.blocks\.)(\d+)\.(.*)", name)
    return (found[1], int(found[2]), found[3]) if found else ("", 0, name)

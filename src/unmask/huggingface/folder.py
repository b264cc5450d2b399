"""Model folders: read and write config, weights and processor together, for every system by its table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from unmask.config import read_json
from unmask.data.processor import Processor
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import MANIFEST, atomic, verify_manifest, write_manifest, write_text
from unmask.huggingface import sentence_transformers, sizes
from unmask.huggingface.config import (
    TABLES,
    completed,
    config_json,
    labels_of,
    own_heads,
    read_config,
    renamed,
    require_model,
    table_for,
    table_of,
)
from unmask.huggingface.hub import model_folder
from unmask.huggingface.kinds import ENCODER_DECODER, SETTINGS, SINGLE_STACK, Kind, OtherKind
from unmask.huggingface.layout import fold
from unmask.huggingface.processors import GENERATION
from unmask.huggingface.table import Table, as_heads
from unmask.huggingface.weights import files_of, fill, normalise, parts_of, read_tensors, rename, rules_of, stored_heads
from unmask.models.heads import asked_of
from unmask.models.model import Model, ModelConfig
from unmask.models.rebuilding import in_folder
from unmask.models.stack_model import StackModel
from unmask.nn import StartsWide
from unmask.nn.lora import adapters
from unmask.types import Head

WORDS_FILE = "words.txt"
STALE = (MANIFEST, GENERATION, sentence_transformers.MODULES)
"""Files that describe the previous weights or the previous tokenizer of a folder, and are removed."""

M = TypeVar("M")


@dataclass(frozen=True)
class Loaded(Generic[M]):
    """A folder in memory.

    model, processor  the model in evaluation mode, and its processor; None if the folder has no processor. Models of
                      text have a `Tokenizer`; the tokenizer of an encoder–decoder may have two sides
    labels            class names of a classification or tagging head, in the order of its outputs
    new, dropped      parts with new random weights, and stored parts that the model does not use
    settings          the settings that the task or run stored in the folder (`Task.settings`); for an encoder–decoder
                      that another program wrote, its search settings
    words             the vocabulary of a head over words (`objectives.bidirectional`); empty without such a head
    folder            where it was read from; None for a model that was not
    """

    model: M
    processor: Processor[Any] | None
    labels: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The processor if it is a tokenizer, else None."""
        return self.processor if isinstance(self.processor, Tokenizer) else None

    def require_tokenizer(self, owner: object) -> Tokenizer:
        """The tokenizer. Raises UnmaskError, with the name `owner` in its sentence, if there is none."""
        if self.tokenizer is None and self.processor is not None:
            raise UnmaskError(
                f"{owner} reads no texts: it has no tokenizer, but the processor {type(self.processor).__name__}."
            )
        if self.tokenizer is None:
            raise UnmaskError(f"{owner} has no tokenizer: put its tokenizer.json or vocab.txt into the folder.")
        return self.tokenizer

    def require_processor(self, owner: object) -> Processor[Any]:
        """The processor. Raises UnmaskError, with the name `owner` in its sentence, if there is none."""
        if self.processor is not None:
            return self.processor
        names = " or ".join(table_of(cast(Any, self.model).config).processor.signs)
        raise UnmaskError(f"{owner} has no processor: put its {names} into the folder.")

    @property
    def kind(self) -> Kind[M]:
        """SINGLE_STACK or ENCODER_DECODER."""
        return table_of(cast(Any, self.model).config).kind

    @property
    def notice(self) -> str:
        """Sentences on the new parts of the model and the unused parts of the folder; empty if there are none."""
        sentences = [f"New parts, with random weights: {', '.join(self.new)}."] if self.new else []
        sentences += [f"Parts of the folder that are left out: {', '.join(self.dropped)}."] if self.dropped else []
        return " ".join(sentences)


def save(
    folder: Path | str,
    model: Model,
    processor: Processor[Any] | None = None,
    *,
    labels: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
) -> None:
    """Write a folder: config, weights, processor, then checksums. `transformers` opens it if it has the model.

    processor  as in `Loaded`; an encoder–decoder stores `Tokenizer.written()` of its tokenizer
    labels     class names of a classification or tagging head, in the order of its outputs
    settings   plain JSON values for the same answers later (`Loaded.settings`). Those of a sentence encoder become the
               files of `sentence-transformers`, and its heads are not saved. The setting "search" of an
               encoder–decoder also configures `generate` of `transformers`
    words      the vocabulary of a head over words, written to words.txt, one per line

    Raises UnmaskError, before it writes anything, if no table describes the model, if the number of labels differs from
    that of the outputs, or if the processor belongs to another model; also if the folder cannot be written.
    """
    folder, model = Path(folder), in_folder(model)
    table = table_of(model.config)
    if processor is not None:
        processor = table.processor.of(processor)
        table.processor.check(processor, model.config, folder)
    if beside := dict(sentence_transformers.files_of(model, settings or {})):
        model, settings = model.without_heads(), {}
    tensors = {theirs: tensor.contiguous() for theirs, tensor in export(model).items()}
    tensors |= _copies(table, tensors)
    values = config_json(table, model, labels)
    if beside:  # these files state that the pooler is not used
        values["architectures"] = [name for name, has in table.architectures.items() if not has][:1]
    if processor is not None:
        values |= table.processor.fields(processor, model)
        beside |= table.processor.beside(processor, model) if table.architectures else {}
    if settings or table.kind.heads:
        values[SETTINGS] = dict(settings or {})
    beside |= {WORDS_FILE: "".join(f"{word}\n" for word in words)} if words else {}
    for part in table.parts:
        beside |= part.files(model.config, settings or {}, labels)
        values |= part.described(settings or {}, labels)
    config = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    with atomic(folder / "model.safetensors") as temporary:
        try:
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
        # A folder may lack a manifest, but with the old manifest the new weights would count as damaged.
        for stale in STALE:
            (folder / stale).unlink(missing_ok=True)
    for name, content in {"config.json": config, **beside}.items():
        write_text(folder / name, content)
    if processor is not None:
        written = table.processor.save(processor, folder, model)
        known = {name for one in TABLES.values() for name in one.processor.files}
        for name in known.difference(written, beside):  # files of the previous processor
            (folder / name).unlink(missing_ok=True)
    there = [name for name in table.processor.files if (folder / name).is_file()]
    write_manifest(folder, ["config.json", "model.safetensors", *there, *beside])
    for name, other in model.auxiliary.items():
        save(folder / name, other, processor)


def config_of(folder: Path | str) -> ModelConfig:
    """The config of an encoder or a causal model in a folder. This is fast: it checks that the weight files exist but
    does not read them.

    Raises UnmaskError as `load` does, except for errors in the weights.
    """
    folder = model_folder(folder)
    require_model(folder)
    values = read_json(folder / "config.json")
    config: ModelConfig = read_config(_wanted(table_for(values, folder), SINGLE_STACK, values, folder), values, folder)
    files_of(folder)
    return config


def holds_encoder_decoder(folder: Path | str) -> bool:
    """Whether a folder holds an encoder–decoder, by its config.json. Raises UnmaskError if config.json is damaged."""
    place = Path(folder) / "config.json"
    table = TABLES.get(str(read_json(place).get("model_type"))) if place.is_file() else None
    return table is not None and table.kind is ENCODER_DECODER


def _wanted(table: Table[Any], kind: Kind[Any] | None, values: Mapping[str, Any], folder: Path) -> Table[Any]:
    """The given table. Raises UnmaskError if it describes another kind of model; None accepts every kind."""
    if kind is not None and table.kind is not kind:
        raise OtherKind(table.kind.instead(folder, values))
    return table


@overload
def load(
    folder: Path | str,
    kind: Kind[M],
    *,
    heads: Mapping[str, Head] | None = None,
    outputs: Sequence[str] = (),
    seed: int = 0,
    weights: Mapping[str, Tensor] | None = None,
) -> Loaded[M]: ...


@overload
def load(
    folder: Path | str,
    kind: None = None,
    *,
    heads: Mapping[str, Head] | None = None,
    outputs: Sequence[str] = (),
    seed: int = 0,
    weights: Mapping[str, Tensor] | None = None,
) -> Loaded[Any]: ...


def load(
    folder: Path | str,
    kind: Kind[Any] | None = None,
    *,
    heads: Mapping[str, Head] | None = None,
    outputs: Sequence[str] = (),
    seed: int = 0,
    weights: Mapping[str, Tensor] | None = None,
) -> Loaded[Any]:
    """Read a folder that `save` or `transformers` wrote, or a model on the Hugging Face hub by its name.

    kind     the expected kind of model, SINGLE_STACK or ENCODER_DECODER; None accepts both
    heads    heads to put on the trunk, by name; None keeps the heads of the folder
    outputs  names of the outputs of `heads`; a stored head whose outputs have other names is replaced by a new one
    seed     seed of the initialisation of parts that the folder does not hold
    weights  tensors to use instead of those of the folder, under the same names, such as a mean of checkpoints

    Raises UnmaskError if the folder is missing, damaged or not supported, or holds another kind of model.
    """
    folder = model_folder(folder)
    require_model(folder)
    verify_manifest(folder)
    values = read_json(folder / "config.json")
    table = _wanted(table_for(values, folder), kind, values, folder)
    config = read_config(table, values, folder)
    found = dict(read_tensors(folder) if weights is None else weights)
    table, config = completed(table, config, values, found, folder)
    tensors = normalise(table, config, found, folder)
    labels = () if table.kind.heads else labels_of(table, values, folder)
    stored = dict(table.kind.heads) or stored_heads(table, tensors, values, config, folder)
    if not stored and table.heads.get("next") == () and any(key.startswith(table.prefix) for key in found):
        stored = {"next": 0}  # a head without weights; the names of a trunk alone have no prefix
    own = {n: head for n, head in own_heads(values, folder).items() if any(k.startswith(f"heads.{n}.") for k in found)}
    stored |= {name: head.outputs for name, head in own.items()}
    table = table.with_heads([*own, *(heads or ())])
    wanted = (
        as_heads({name: n for name, n in stored.items() if name not in own}) | own if heads is None else dict(heads)
    )
    pooler = heads is None and bool(table.pooler) and "pooler" in parts_of(table, tensors)
    table.processor.check_ids(config, folder)
    make = partial(config.build, heads=wanted, seed=None, **({"pooler": True} if pooler else {}))
    model = sizes.build(make, config.to_dict(), tensors.values(), folder)
    new, dropped = fill(table, model, tensors, keep=set(stored), left=renamed(wanted, labels, outputs), folder=folder)
    if heads is None and (new or dropped):
        broken = ", ".join(sorted({*new, *dropped}))
        raise UnmaskError(f"{folder}: the weights of {broken} are incomplete. Restore the folder from a copy.")
    fresh = nn.ModuleList([model.get_submodule(part if part == "pooler" else f"heads.{part}") for part in new])
    if new:
        config.initialise(fresh, seed)  # all in one call: separate calls with one seed would draw equal numbers
    for module in fresh:
        if isinstance(module, StartsWide):
            module.on_a_trunk()
    for name, other in model.auxiliary.items():
        new += () if _filled(other, folder / name, model, seed) else (name,)
    classes = [head.outputs for n, head in wanted.items() if head.has_labels and stored.get(n) == head.outputs]
    if "regression" in wanted and classes and classes[0] != len(labels):
        labels = ()  # for several scores, version 0.1 wrote only one name
    if classes and labels and classes[0] != len(labels):
        named = f"{folder / 'config.json'} names {plural(len(labels), 'label')}"
        raise UnmaskError(f"{named}, but the weights have {classes[0]}.")
    processor = table.processor.load(folder, config)
    settings = {} if heads is not None else _settings(table, config, values, processor, folder)
    words = words_of(folder) if "words" in model.heads else ()
    return Loaded(model.eval(), processor, labels if classes else (), new, dropped, settings, words, folder)


def opened(model: Path | str | Loaded[Any], kind: Kind[M]) -> Loaded[M]:
    """Load a folder, or return the argument if it is loaded already. Raises UnmaskError for another kind of model."""
    if not isinstance(model, Loaded):
        return load(model, kind)
    if model.kind is not kind:
        facts = {"model_type": table_of(model.model.config).model_type, SETTINGS: model.settings}
        raise OtherKind(model.kind.instead("This", facts))
    return model


def _settings(
    table: Table[Any], config: Any, values: Mapping[str, Any], processor: Any, folder: Path
) -> Mapping[str, Any]:
    """`Loaded.settings` of a folder: the settings that `save` wrote, or else those of other programs."""
    found = values.get(SETTINGS)
    if not table.kind.heads:
        found = sentence_transformers.read(folder, processor) or found or None
    if not isinstance(found, Mapping | None):
        raise UnmaskError(f"{folder / 'config.json'}: {SETTINGS} must hold settings, not {found!r}.")
    for part in table.parts if found is None else ():
        found = {**(found or {}), **part.settings(config, values, folder)}
    return found or {}


def words_of(folder: Path) -> tuple[str, ...]:
    """The vocabulary of a head over words (`Loaded.words`), from words.txt; empty if the folder has no such file."""
    path = folder / WORDS_FILE
    if not path.is_file():
        return ()
    try:
        return tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not text in UTF-8. Restore the folder from a copy.") from None


def _filled(other: StackModel, folder: Path, model: Model, seed: int) -> bool:
    """Load the weights of an auxiliary model of `model` from its folder, except those that the two models share, and
    return True. Without a folder, initialise it and return False. Raises UnmaskError if the folder holds another model.
    """
    if not folder.is_dir():
        project = other.embedding.get_submodule("project")
        other.config.initialise(nn.ModuleList([project, other.stack, other.heads]), seed)
        return False
    asked = {name: head for name, layer in other.heads.items() if (head := asked_of(layer))}
    stored = load(folder, SINGLE_STACK, heads=asked).model.own_parameters()
    shared = {id(p) for p in model.own_parameters().values()}
    with torch.no_grad():
        for name, p in ((name, p) for name, p in other.named_parameters() if id(p) not in shared):
            if name not in stored or stored[name].shape != p.shape:
                raise UnmaskError(
                    f"{folder} does not match the model in the folder above it: {name} is missing or has another shape."
                )
            p.copy_(stored[name])
    return True


def export(model: Model) -> dict[str, Tensor]:
    """The model's parameters and buffers as a folder stores them, under their Hugging Face names.

    Raises UnmaskError for a parameter that no rule names, and for a model with adapters: its weights alone would give
    other outputs.
    """
    if adapters(model):
        raise UnmaskError("The model has adapters: merge them into its weights with unmask.runs.transfer.merged.")
    table, parameters = _table(model), model.own_tensors()
    tensors = fold(table, {theirs: parameters[ours].detach() for ours, theirs in _full_names(model, table).items()})
    for part in table.parts:
        tensors = part.store(model.config, tensors)
    return {_shown(theirs, model, table): tensor for theirs, tensor in tensors.items()}


def _copies(table: Table[Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a folder also stores under a second key: `transformers` 4 reads the output bias of some models
    from it."""
    return {name: tensors[first].clone() for name in table.written if (first := table.copies[name]) in tensors}


def names(model: Model) -> dict[str, str]:
    """Name of each parameter and buffer -> its Hugging Face name; one that a folder concatenates with others has the
    name of a submodule (`c_attn.query`). Raises UnmaskError for a parameter that no rule names."""
    table = _table(model)
    return {ours: _shown(theirs, model, table) for ours, theirs in _full_names(model, table).items()}


def _table(model: Model) -> Table[Any]:
    """The table of a model, extended by the heads that no table names."""
    return table_of(model.config).with_heads(name for name, layer in model.heads.items() if asked_of(layer))


def _shown(theirs: str, model: Model, table: Table[Any]) -> str:
    """The key in a folder, without the prefix if the model has no head."""
    return theirs if model.heads else theirs.removeprefix(table.prefix)


def _full_names(model: Model, table: Table[Any]) -> dict[str, str]:
    for head in model.heads.keys() - table.heads.keys():
        raise unknown(f"entry in the table of '{table.model_type}' for the head", head, table.heads)
    rules = rules_of(table, list(model.heads), pooler=model.pooler is not None)
    found: dict[str, str] = {}
    for ours in model.own_tensors():
        theirs = rename(ours, rules, 0)
        if theirs is None:
            raise UnmaskError(f"The table of '{table.model_type}' has no name for the parameter '{ours}'.")
        found[ours] = theirs
    return found

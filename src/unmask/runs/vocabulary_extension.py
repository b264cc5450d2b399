"""Extend the vocabulary of a model folder with pieces of a domain, and measure the number of pieces a word."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from unmask import huggingface
from unmask.data.text import extension
from unmask.data.text.fertility import Fertility, count_words, is_wordpiece, of_words, render
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural
from unmask.files import sha256, write_text
from unmask.huggingface.card import Card
from unmask.models.model import Model
from unmask.nn import VocabularyHead
from unmask.runs import cards


@dataclass(frozen=True)
class Extended:
    """A folder with a larger vocabulary.

    tokenizer      the tokenizer with the new entries
    pieces         the new entries, in the order of their ids
    before, after  fertility on the text that the entries were learned from
    limit          why there are fewer entries than requested; empty if there are not
    """

    tokenizer: Tokenizer
    pieces: tuple[str, ...]
    before: Fertility
    after: Fertility
    limit: str = ""

    def summary(self) -> str:
        """The new pieces, and the fertility before and after, in a few lines."""
        shown = ", ".join(self.pieces[:20]) + (", …" if len(self.pieces) > 20 else "")
        number = f"{len(self.pieces):,} new pieces" + (f" ({self.limit})" if self.limit else "")
        return f"{number}: {shown}\n\n" + render({"after": self.after, "before": self.before})


def extend(
    folder: Path | str, texts: Iterable[str], pieces: int, out: Path | str, *, least: int = extension.LEAST
) -> Extended:
    """Add at most `pieces` WordPiece entries, learned from texts, to a model folder and write it to `out`.

    The vector of a new entry is the mean of the vectors of the pieces that it was split into before, and its bias in
    the output layer is the mean of their biases (Gee et al. 2022, "Fast vocabulary transfer"; exBERT, Tai et al. 2020,
    also adds entries, but to a frozen model). All other weights stay: a text without new entries gives the same logits
    as before. The new entries need continued pre-training before they are better than the pieces that they replace.
    `extension.json` in `out` lists the entries and their pieces. The generator beside an ELECTRA gets the same entries.

    least  least number of uses of an entry in the texts

    Raises UnmaskError, before anything is written, for a folder whose tokenizer is not WordPiece, for an ELMo, which
    reads characters, for texts that give no new entry, and for an `out` that is not empty.
    """
    folder, out = Path(folder), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    tokenizer = loaded.require_tokenizer(folder)
    extension.check_wordpiece(tokenizer)
    if loaded.model.token_table is None:
        raise UnmaskError(f"{folder} holds a model that reads words character by character: it needs no new pieces.")
    parts, generator = {out: loaded}, folder / "generator"
    if "rtd" in loaded.model.heads and generator.is_dir():
        parts[out / generator.name] = huggingface.load(generator, huggingface.SINGLE_STACK)
    words = count_words(tokenizer, texts)
    new = extension.learn_from_words(tokenizer, words, pieces, least=least)
    if not new:
        raise UnmaskError(f"No new piece would be used {least} times in this text: give more text, or lower --least.")
    made_of = extension.torn_before(tokenizer, new)
    larger = extension.extended(tokenizer, new)
    for part in parts.values():
        grow(part.model, tokenizer.size, made_of)
    limit = f"no other would be used {least} times" if len(new) < pieces else ""
    result = Extended(larger, tuple(new), of_words(tokenizer, words), of_words(larger, words), limit)
    for place, part in parts.items():
        huggingface.save(place, part.model, larger, labels=part.labels, settings=part.settings)
    entries = plural(len(new), "new entry", "new entries")
    untrained = f"The vectors of {entries} are means of others: continue the pre-training before you use the model."
    cards.write(out, Card(start=cards.name_of(folder), made=cards.made(folder), warnings=[untrained]))
    facts = {
        "folder": str(folder),
        "weights": {path.name: sha256(path) for path in sorted(folder.glob("*.safetensors"))},
        "pieces_per_word": {"before": result.before.per_word, "after": result.after.per_word},
        "pieces": {p: tokenizer.pieces(ids) for p, ids in zip(new, made_of, strict=True)},
    }
    write_text(out / "extension.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return result


@torch.no_grad()
def grow(model: Model, begin: int, made_of: Sequence[Sequence[int]]) -> None:
    """Add rows for new tokens to the token table and the output layers of a model, in place.

    begin    id of the first new token; unused rows that the model already has from there on are overwritten
    made_of  for each new token, ids of the old tokens whose mean initialises it
    """
    token = model.token_table
    assert token is not None

    def larger(old: Tensor) -> nn.Parameter:
        rows = [old[torch.tensor(ids, device=old.device)].mean(0) for ids in made_of]
        return nn.Parameter(torch.cat([old[:begin], torch.stack(rows), old[begin + len(rows) :]]))

    token.weight = larger(token.weight)
    token.num_embeddings = token.weight.shape[0]
    for head in model.heads.values():
        if isinstance(head, VocabularyHead):
            head.extend(larger)
    model.config = model.config.replace(vocabulary=token.num_embeddings)


def check(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    reference: Iterable[str] | None = None,
    *,
    pieces: Sequence[int] = (100, 1_000),
) -> dict[str, Fertility]:
    """Heading -> fertility: on a text, on a reference, and on the text with each number of new pieces in `pieces`.

    If the text gives fewer new pieces, the number is lower. A tokenizer that is not WordPiece gets no new pieces.
    """
    words = count_words(tokenizer, texts)
    found = {"this text": of_words(tokenizer, words)}
    if reference is not None:
        found["reference"] = of_words(tokenizer, count_words(tokenizer, reference))
    numbers = sorted({n for n in pieces if n > 0})
    if numbers and is_wordpiece(tokenizer):
        new = extension.learn_from_words(tokenizer, words, numbers[-1])
        for n in sorted({min(n, len(new)) for n in numbers} - {0}):
            found[f"+{n:,} pieces"] = of_words(extension.extended(tokenizer, new[:n]), words)
    return found

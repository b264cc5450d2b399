"""Coreference: the mentions of a document that mean the same person or thing, as clusters.

Shapes: M words of a batch, W words of a document, D width, C candidate spans, N kept spans, K antecedents of a span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.files.lines import bare
from unmask.data.labelled.coreference import is_gap, read_documents, read_gap
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Ambiguous, Clusters, Discourse, Row, WordSpan
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.nn import SpanRanking
from unmask.nn.coreference import Ranked, gold_antecedents, marginal_loss
from unmask.tasks.batching import sequence_of
from unmask.tasks.lexical.coreference import mentions_in, string_match
from unmask.tasks.linked_mentions import (
    DocumentForm,
    Linked,
    as_clusters,
    linked,
    parts_of,
    render_clusters,
    word_windows,
)
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.task import Encoded, Say, Score, Task, evaluating
from unmask.types import Batch, Example, Head, Loss

HEADS = ("MUC", "B³", "CEAFφ4", "mentions")


@dataclass(frozen=True, kw_only=True)
class CoreferenceOptions(TaskOptions):
    """Options for the training of coreference.

    longest_mention  most words of a mention
    kept_spans       spans that are kept as possible mentions, as a share of the words
    antecedents      spans before a span that are scored as its antecedent
    window           tokens of the windows in which a document is read, each by itself; at most --length
    training_windows  windows of a training document that are learned from together; mentions further apart are not
                     linked. 0: all
    singletons       whether mentions are learned, and answered, that no other mention refers to; auto: if the training
                     rows have any
    """

    longest_mention: int = 10
    kept_spans: float = 0.4
    antecedents: int = 50
    window: int = 128
    training_windows: int = 3
    singletons: Literal["auto", "yes", "no"] = "auto"

    def check(self) -> None:
        if min(self.longest_mention, self.antecedents) < 1 or self.kept_spans <= 0 or self.training_windows < 0:
            raise UnmaskError(
                "--longest-mention and --antecedents must be at least 1, --kept-spans above 0, and --training-windows "
                "at least 0."
            )


class Coreference(Task):
    """Cluster the mentions of a document: each span chooses the span before it that it refers to, or none (Lee et al.
    2017, "End-to-end Neural Coreference Resolution"; the equations are in `nn.coreference`).

    A document is read in windows, each by itself (Joshi et al. 2019, "BERT for Coreference Resolution: Baselines and
    Analysis", the independent variant); spans of all its windows are compared. The vector of a word is the state of its
    first piece.

    longest_mention, kept_spans, antecedents, window, training_windows  as in `CoreferenceOptions`
    singletons  whether a span with m(i) > 0 is a mention even if nothing refers to it. m(i) is then also learned as the
                log odds of a mention, by the cross-entropy over all candidates
    """

    task_name = name = "coreference"
    also_called = ("coref", "coreference-resolution")
    row_class = Discourse
    options_class = CoreferenceOptions
    usual_length = 512
    metric = "conll_f1"
    panel, gives = "clusters", "clusters of mentions"
    rows_are = "documents with clusters of mentions, or pronouns with two names"
    reference = "string match: equal names, and the nearest mention for a pronoun"
    references_are = "string match between the annotated mentions"
    folders = True
    form = DocumentForm()

    def __init__(
        self,
        *,
        longest_mention: int = 10,
        kept_spans: float = 0.4,
        antecedents: int = 50,
        window: int = 128,
        training_windows: int = 3,
        singletons: bool = False,
    ) -> None:
        self.longest_mention, self.kept_spans, self.antecedents = longest_mention, kept_spans, antecedents
        self.window, self.training_windows, self.singletons = window, training_windows, singletons
        self.heads: Mapping[str, Head] = {self.name: Head("span_ranking", longest_mention)}

    # -- rows

    @classmethod
    def read_rows(cls, path: Path, rows: Rows, *, scoring: bool = False) -> Dataset:
        reads = read_gap if is_gap(path, rows.encoding) else read_documents
        return reads(path, encoding=rows.encoding)

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if path.is_dir() or bare(path).suffix == ".conll":
            return read_documents(path, labelled=False, encoding=encoding).rows
        return read_gap(path, encoding).rows if is_gap(path, encoding) else None

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """Raises UnmaskError for rows of GAP among those of training and evaluation, which have no clusters."""
        options.check()
        for name, rows in sets.items():
            if any(isinstance(row, Ambiguous) for row in rows):
                raise UnmaskError(
                    f"{rows.path} has pronouns with two names, without clusters, so it cannot be --{name}: train on "
                    "documents, and score it with unmask evaluate."
                )
        sizes = [len(cluster) for row in documents(sets["train"]) for cluster in row.clusters]
        spans = [end - begin for row in documents(sets["train"]) for one in row.clusters for begin, end in one]
        long = sum(length > options.longest_mention for length in spans) / len(spans)
        say(
            f"{len(spans):,} mentions in {len(sizes):,} clusters, {sizes.count(1):,} of one mention; {long:.1%} of the "
            f"mentions are longer than {options.longest_mention} words and cannot be found."
        )
        singletons = 1 in sizes if options.singletons == "auto" else options.singletons == "yes"
        return cls(**{**vars(options), "singletons": singletons})

    def settings(self) -> dict[str, Any]:
        names = ("longest_mention", "kept_spans", "antecedents", "window", "training_windows", "singletons")
        return {name: getattr(self, name) for name in names}

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        """Windows of each document. The target of a word, at its first piece, is a sequence of numbers: those of the
        document, of the word and of its sentence, then the length and the cluster of each mention that begins there."""
        frame, _ = tokenizer.join(np.array([-1]))
        room, lead = min(length, self.window) - len(frame) + 1, int(np.flatnonzero(frame == -1)[0])
        if room < 1:
            raise UnmaskError(
                f"A window of {min(length, self.window)} tokens leaves no room for words; set --window 128."
            )
        examples: list[Example] = []
        owners: list[int] = []
        for number, row in enumerate(documents(rows)):
            ids, bounds = _pieces(row, tokenizer)
            values = _values(row, number)
            for low, high in word_windows(bounds, row.starts, room):
                tokens, segments = tokenizer.join(ids[bounds[low] : bounds[high]][:room])
                own = values[low:high]
                target = (
                    bounds[low:high] - bounds[low] + lead,
                    np.concatenate(own),
                    np.array([len(one) for one in own]),
                )
                examples.append(Example(tokens, segments, {self.name: target}))
                owners.append(number)
        counts = np.bincount(owners, minlength=len(rows))
        split = int((counts > 1).sum())
        return Encoded(examples, np.array(owners, np.int64), rows, min(length, self.window), split=split, together=True)

    def for_training(self, encoded: Encoded, processor: Tokenizer) -> Encoded:
        """Documents in parts of `training_windows` windows."""
        if not self.training_windows:
            return encoded
        room = encoded.length - len(processor.join(np.array([-1]))[0]) + 1
        parts: list[Row] = []
        for row in documents(encoded.rows):
            found = list(word_windows(_pieces(row, processor)[1], row.starts, room))
            parts += parts_of(row, found, self.training_windows)
        return self.encode(parts, processor, encoded.length)

    # -- the model

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The marginal loss of each document, and with `singletons` the cross-entropy of m(i), in nats; the count is
        that of words."""
        target, head = batch.targets[self.name], _ranking(model)
        if target.lengths is None:  # of a batch without targets
            return Loss(sum((p.sum() * 0 for p in head.parameters()), hidden_BTD.sum() * 0), 0)
        x_MD = model.head_inputs(self.name, hidden_BTD, target.places, batch).float()
        ends = target.lengths.cumsum(0).tolist()
        values = target.values.tolist()
        words = [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        of_document: dict[int, list[int]] = {}
        for place in sorted(range(len(words)), key=lambda i: words[i][1]):
            of_document.setdefault(words[place][0], []).append(place)
        losses = []
        for places in of_document.values():
            own = [words[place] for place in places]
            sentence = np.array([word[2] for word in own])
            gold = {
                (i, i + length): cluster
                for i, word in enumerate(own)
                for length, cluster in zip(word[3::2], word[4::2], strict=True)
            }
            losses.append(self._loss(head(x_MD[places], sentence, self.kept_spans, self.antecedents), gold))
        return Loss(torch.stack(losses).sum(), len(words))

    def _loss(self, ranked: Ranked, gold: Mapping[WordSpan, int]) -> Tensor:
        spans = [(begin, end) for begin, end in ranked.spans.tolist()]
        cluster_N = [gold.get(spans[i], -1) for i in ranked.kept.tolist()]
        loss = marginal_loss(ranked.scores, gold_antecedents(ranked, cluster_N))
        if self.singletons:
            are = torch.tensor([float(span in gold) for span in spans], device=loss.device)
            loss = loss + F.binary_cross_entropy_with_logits(ranked.mentions, are, reduction="sum")
        return loss

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """The states [W, D] of the words of each window: the head compares the spans of all windows of a document."""
        places_M = self.places(batch)
        x_MD = model.head_inputs(self.name, model(batch), places_M, batch).float().cpu().numpy()
        assert batch.starts is not None
        owner_M = sequence_of(batch, places_M).cpu().numpy()
        return [x_MD[owner_M == i] for i in range(len(batch.starts))]

    def answer_all(self, model: Model, encoded: Encoded, pad: int) -> list[Linked]:
        states, head = super().answer_all(model, encoded, pad), _ranking(model)
        with evaluating(head):
            pairs = zip(documents(encoded.rows), states, strict=True)
            return [self._linked(head, torch.from_numpy(x_WD).to(model.device), row) for row, x_WD in pairs]

    def _linked(self, head: SpanRanking, x_WD: Tensor, row: Discourse) -> Linked:
        ranked = head(x_WD, _sentences(row), self.kept_spans, self.antecedents)
        spans = [(begin, end) for begin, end in ranked.spans[ranked.kept].tolist()]
        alone_N = ranked.mentions[ranked.kept].cpu().numpy() > 0 if self.singletons else np.zeros(len(spans), bool)
        found = linked(spans, ranked.scores.cpu().numpy(), ranked.antecedents.cpu().numpy(), alone_N)
        gold = {span: number for number, cluster in enumerate(row.clusters) for span in cluster}
        return replace(found, loss=float(self._loss(ranked, gold))) if gold else found

    # -- answers

    def metrics(self, answers: Sequence[Linked], rows: Sequence[Row]) -> dict[str, float]:
        """`metrics.of_coreference`, and `loss` in nats per word; of pronouns with two names `metrics.of_pronouns`: the
        answer to a name is whether a mention with a word of it is in one cluster with the pronoun."""
        found = [answer.clusters for answer in answers]
        losses = [answer.loss for answer in answers if answer.loss is not None]
        words = sum(len(row.words) for row in rows)
        return {**_scores(found, rows), **({"loss": sum(losses) / words} if losses else {})}

    def tables(self, answers: Sequence[Linked], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        if any(isinstance(row, Ambiguous) for row in rows):
            return {}
        pairs = [(row.clusters, found.clusters) for row, found in zip(documents(rows), answers, strict=True)]
        cells = [
            [name, *(f"{value:.4f}" for value in (score.recall, score.precision, score.f1))]
            for name, score in zip(HEADS, metrics.of_clusters(pairs).values(), strict=True)
        ]
        return {"Clusters of mentions": {"heads": ["score", "recall", "precision", "F1"], "rows": cells}}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        return self._by_strings(rows, [mentions_in(row) for row in documents(rows)])

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        def score(rows: Sequence[Row]) -> Mapping[str, float]:
            annotated = [[span for cluster in row.clusters for span in cluster] for row in documents(rows)]
            return self._by_strings(rows, annotated)

        return {"annotated": lambda: score}

    def _by_strings(self, rows: Sequence[Row], mentions: Sequence[Sequence[WordSpan]]) -> dict[str, float]:
        pairs = zip(documents(rows), mentions, strict=True)
        return _scores([string_match(row, own, singletons=self.singletons) for row, own in pairs], rows)

    def check_teachable(self) -> None:
        raise UnmaskError("Coreference has no distribution that a teacher could soften: train without a teacher.")

    def answer(self, row: Row, found: Linked) -> dict[str, Any]:
        return as_clusters(row, found)

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return render_clusters(text, answer)


def documents(rows: Sequence[Row]) -> list[Discourse]:
    """The rows as documents. Raises UnmaskError for a row that is none."""
    found = [row for row in rows if isinstance(row, Discourse)]
    if len(found) < len(rows):
        raise UnmaskError(f"{next(row.place for row in rows if not isinstance(row, Discourse))} is not a document.")
    return found


def _scores(found: Sequence[Clusters], rows: Sequence[Row]) -> dict[str, float]:
    """Raises UnmaskError where documents and pronouns are mixed."""
    asked = [row for row in rows if isinstance(row, Ambiguous)]
    if not asked:
        return metrics.of_coreference(zip((row.clusters for row in documents(rows)), found, strict=True))
    if len(asked) < len(rows):
        raise UnmaskError(
            "Documents with clusters, and pronouns with two names, have different scores: score them apart."
        )
    pronouns = [row.words[row.pronoun[0]] for row in asked for _ in row.names]
    said = [_together(row.pronoun, name, own) for row, own in zip(asked, found, strict=True) for name in row.names]
    return metrics.of_pronouns(pronouns, [meant for row in asked for meant in row.meant], said)


def _together(pronoun: WordSpan, name: WordSpan, clusters: Clusters) -> bool:
    """Whether a mention that shares a word with the name is in one cluster with the pronoun."""
    own = next((cluster for cluster in clusters if pronoun in cluster), ())
    return any(begin < name[1] and end > name[0] for begin, end in own)


def _ranking(model: Model) -> SpanRanking:
    head = model.heads["coreference"]
    assert isinstance(head, SpanRanking)
    return head


def _sentences(row: Discourse) -> np.ndarray:
    """[W]: the number of the sentence of each word."""
    return np.searchsorted(np.array(row.starts), np.arange(len(row.words)), "right")


def _pieces(row: Discourse, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a document, and [W + 1] the first piece of each word, and the number of pieces."""
    encoding = tokenizer.encode_words(row.words)
    return encoding.ids, np.searchsorted(encoding.words, np.arange(len(row.words) + 1))


def _values(row: Discourse, number: int) -> list[list[int]]:
    """The target of each word (`Coreference.encode`)."""
    values = [[number, word, sentence] for word, sentence in enumerate(_sentences(row).tolist())]
    for cluster, spans in enumerate(row.clusters):
        for begin, end in spans:
            values[begin] += [end - begin, cluster]
    return values

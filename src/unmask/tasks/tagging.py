"""Tagging: a tag for every word of a sentence, word by word or as a legal sequence.

Shapes: M targets, C tags, W words of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from unmask import metrics
from unmask.data.files.tables import guess_format
from unmask.data.labelled import conll
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.labelled.schemes import Allowed, allowed, convert, detect
from unmask.data.processor import Processor
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.nn.crf import LinearChainCRF, best_paths, forbidden
from unmask.tasks.balance import ClassLoss, Weighing
from unmask.tasks.batching import sequence_of
from unmask.tasks.labels import different, label_id, mean_cross_entropy
from unmask.tasks.lengths import windows
from unmask.tasks.lexical.tagging import tagger
from unmask.tasks.reading import counts_of, labels_of, read_table, with_labels
from unmask.tasks.rows import Rows, TableRows, TaskOptions, column
from unmask.tasks.tagged_words import SentenceForm, check_segments, of_capitals, predicate_of, tagged
from unmask.tasks.task import Encoded, Say, Score, Task
from unmask.tasks.texts import new_of_texts
from unmask.tasks.written_tags import WrittenTags
from unmask.types import Batch, Example, Head, Loss

AT_ONCE = 64  # sentences that go through a CRF together: memory grows with their number times C * C


@dataclass(frozen=True, kw_only=True)
class TaggingRows(TableRows):
    """Sentences of tagged words.

    text   column of the words, if it does not have the usual name; in CoNLL its number
    label  column of the tags; in CoNLL its number
    """

    text: str | None = column()
    label: str | None = column()


@dataclass(frozen=True, kw_only=True)
class TagScoring(TaskOptions):
    """Options for the scoring of tags.

    scheme  tag sequences that are allowed: "auto", those of the scheme of the training rows; "any", all
    """

    scheme: Literal["auto", "any"] = "auto"


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(TagScoring, Weighing):
    """Options for the training of a tagger.

    crf  score whole sequences of tags with a linear-chain CRF (Lample et al. 2016)
    """

    crf: bool = False


@dataclass(frozen=True)
class Chosen:
    """The answer of a model with a CRF to a sentence.

    probabilities  [W, C] of each tag, given all words: the marginals of the CRF
    best           [W] the tags of the most probable sequence, which may differ from the most likely tag of each word
    """

    probabilities: np.ndarray
    best: np.ndarray


Answer = np.ndarray | Chosen
"""The answer to a sentence: probabilities [W, C], or with a CRF also the best sequence."""


class Tagging(Task):
    """Predict a tag for every word of a sentence: cross-entropy at the first piece of each word (Devlin et al. 2018,
    section 5.3).

    scheme    scheme of the tags, if they mark spans (`scheme_of`): the answer is the most probable legal sequence of
              each sentence; None: any sequence
    crf       score whole sequences, with a linear-chain CRF over the outputs of the head (Lample et al. 2016). The loss
              is -log p of the tags of each sentence, summed; it still counts words, so its mean is in nats per word,
              and smaller than the mean cross-entropy of the words, which `metrics` gives
    weighing  weights of classes in the loss, or the focal loss; None: plain cross-entropy. Not with a CRF

    A sentence that does not fit is split into windows that share some context; each word is answered once, in the
    window where it is furthest from an edge. A CRF is trained on the words that a window answers, but answers for the
    whole sentence. Windows may begin and end within spans, so training forbids illegal transitions only; prediction
    also forbids illegal tags at the begin and the end of a sentence. With a CRF, tags that the scheme does not allow,
    such as a stray I, are converted to the scheme.

    The pieces of a row's predicate are segment 1, all others segment 0 (as in Shi & Lin 2019, "Simple BERT Models for
    Relation Extraction and Semantic Role Labeling"); in windows without the predicate, all are segment 0.
    """

    task_name = name = "tagging"
    also_called: ClassVar[tuple[str, ...]] = (
        "ner",
        "named-entity-recognition",
        "pos",
        "pos-tagging",
        "chunking",
        "token-classification",
    )
    rows_class: ClassVar[type[Rows]] = TaggingRows
    options_class = TaggingOptions
    scoring_class = TagScoring
    panel, gives = "tag", "tags of words"
    pipeline = "token-classification"
    rows_are = "tagged words"
    references_are = "logistic regression on a word, its shape and its neighbours"
    form = SentenceForm()
    written = WrittenTags

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        format = rows.format
        if format is None:
            guessed = guess_format(path, otherwise="conll", encoding=rows.encoding)
            format = "conll" if guessed in ("tsv", "csv", "conll") else None  # a sentence has no line of a table
        return read_table(path, cls.task_name, rows, format=format)

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        return conll.read_conll(path, labelled=False, encoding=encoding).rows if conll.holds(path, encoding) else None

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        return rows.tagged

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """Raises UnmaskError for tags of two schemes."""
        train = sets["train"]
        labels = labels_of(sets, say, held_out=held_out, what="Tags" if train.tagged else "Labels")
        weighing = options.weighing(counts_of(train, labels))
        scheme = None if options.scheme == "any" else scheme_of(train.rows)
        if scheme is not None:
            say(f"The tags mark spans as {scheme} does; only legal sequences are answered.")
        return Tagging(labels, scheme=scheme, crf=options.crf, weighing=weighing)

    @classmethod
    def new(cls, config: ModelConfig, rows: Sequence[Row]) -> tuple[ModelConfig, Processor[Any]]:
        return new_of_texts(config, rows)

    def check_rows(self, model: Model, rows: Sequence[Row]) -> None:
        check_segments(model, rows)

    @classmethod
    def of_folder(cls, model: Model, labels: tuple[str, ...], settings: dict[str, Any]) -> Self:
        if settings.setdefault("crf", "crf" in model.heads) != ("crf" in model.heads):
            has, other = ("a", "none") if "crf" in model.heads else ("no", "one")
            raise UnmaskError(f"The model has {has} CRF, but config.json (unmask_task) names {other}.")
        return cls(labels, **settings)

    def __init__(
        self,
        labels: Sequence[str],
        *,
        scheme: str | None = None,
        crf: bool = False,
        weighing: ClassLoss | None = None,
    ) -> None:
        if crf and weighing is not None:
            raise UnmaskError("Weights of classes are for words, but a CRF scores whole sentences: use one of the two.")
        self.labels = different(labels)
        self.scheme, self.crf, self.weighing = scheme, crf, weighing
        self.heads: Mapping[str, Head] = {self.name: Head("token", len(self.labels))}
        if crf:
            self.heads = {**self.heads, "crf": Head("transitions", len(self.labels))}
        self.metric = "f1" if metrics.are_iob(self.labels) or metrics.outside(self.labels) else "accuracy"
        self._allowed = None if scheme is None else allowed(self.labels, scheme)
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def settings(self) -> dict[str, Any]:
        return {**({"scheme": self.scheme} if self.scheme else {}), **({"crf": True} if self.crf else {})}

    # -- rows

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        empty = np.empty(0, np.int64)
        room = length - len(tokenizer.join(empty)[0])
        if room < 1:
            raise UnmaskError(f"A length of {length} leaves no room for words; set --length 16 or more.")
        lead = int(np.flatnonzero(tokenizer.join(np.array([-1]))[0] == -1)[0])
        examples: list[Example] = []
        owners: list[int] = []
        split = 0
        for number, row in enumerate(rows):
            encoding = tokenizer.encode_words(row.words)
            firsts = np.searchsorted(encoding.words, np.arange(len(row.words)))  # place of each word's first piece
            values = self._values(row)
            marked = encoding.words == predicate_of(row)
            split += len(encoding.ids) > room
            for begin, low, high in windows(len(encoding.ids), room):
                owned = slice(*np.searchsorted(firsts, [low, high]))
                if owned.start == owned.stop and begin:
                    continue
                tokens, segments = tokenizer.join(encoding.ids[begin : begin + room])
                segments[lead + np.flatnonzero(marked[begin : begin + room])] = 1
                target = (firsts[owned] - begin + lead, values[owned])
                examples.append(Example(tokens, segments, {self.name: target}))
                owners.append(number)
        return Encoded(examples, np.array(owners, np.int64), rows, length, split=split)

    def for_training(self, encoded: Encoded, processor: Tokenizer) -> Encoded:
        note = "" if processor.cased else of_capitals(encoded.rows)
        return replace(encoded, notes=(*encoded.notes, note)) if note else encoded

    def _values(self, row: Row) -> np.ndarray:
        """[W] the numbers of the target tags; 0 for a row without tags."""
        if not row.tags:
            return np.zeros(len(row.words), np.int64)
        values = np.array([label_id(self._ids, tag, row) for tag in row.tags], np.int64)
        if not self.crf or self.scheme is None or _is_legal(values, self._allowed):
            return values
        tags = convert(row.tags, self.scheme)
        missing = next((tag for tag in tags if tag not in self._ids), None)
        if missing is not None:
            raise UnmaskError(
                f"{row.place or 'A row'} has tags that are not legal in {self.scheme}; they would be with '{missing}', "
                "which is not among the labels. Correct the tags, or allow any sequence."
            )
        return np.array([self._ids[tag] for tag in tags], np.int64)

    # -- the model

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        if self.crf:
            emissions_MC = model.answer(self.name, hidden_BTD, target.places, batch).float()
            # Packed sequences are not in the order of the examples, but the targets of each are contiguous.
            _, lengths = sequence_of(batch, target.places).unique_consecutive(return_counts=True)
            inner = None if self._allowed is None else (self._allowed.between, None, None)
            likelihoods = self._chain(model, inner).log_likelihood(emissions_MC, target.values, lengths)
            return Loss(-likelihoods.sum(), target.values.numel())
        if self.weighing is not None:
            return self.weighing(model.answer(self.name, hidden_BTD, target.places, batch).float(), target.values)
        return super().score(model, hidden_BTD, batch)

    def squash(self, logits: Tensor) -> Tensor:
        """Probabilities; with a CRF the unchanged emissions, because the CRF needs those of the whole sentence."""
        return logits if self.crf else super().squash(logits)

    def answer_all(self, model: Model, encoded: Encoded, pad: int) -> list[Any]:
        """For each row an array [W, C] of probabilities, or with a CRF `Chosen`.

        Raises UnmaskError for rows with predicates where the model has no second segment to mark them.
        """
        check_segments(model, encoded.rows)
        answers = super().answer_all(model, encoded, pad)
        return self._chosen(model, answers) if self.crf else answers

    def _chosen(self, model: Model, emissions: Sequence[np.ndarray]) -> list[Chosen]:
        """The answers of the CRF to the emissions [W, C] of whole sentences."""
        chain = self._chain(model, self._allowed)
        found: list[Chosen] = []
        for low in range(0, len(emissions), AT_ONCE):
            some = emissions[low : low + AT_ONCE]
            lengths = [len(words) for words in some]
            joined = torch.from_numpy(np.concatenate(some)).to(model.device)
            marginals = chain.marginals(joined, lengths)
            marginals = marginals / marginals.sum(-1, keepdim=True)  # rounding grows with the length of a sentence
            paths = chain.decode(joined, lengths)
            for p, path in zip(marginals.cpu().split(lengths), paths, strict=True):
                found.append(Chosen(p.numpy(), np.array(path, np.int64)))
        return found

    def _chain(self, model: Model, within: Sequence[Any] | None) -> LinearChainCRF:
        """A CRF that shares the parameters of the model's CRF, restricted to the allowed sequences."""
        crf = model.heads["crf"]
        assert isinstance(crf, LinearChainCRF)
        chain = LinearChainCRF(len(self.labels), within).to(model.device)
        chain.transitions, chain.begin, chain.end = crf.transitions, crf.begin, crf.end
        return chain

    # -- answers

    def metrics(self, answers: Sequence[Answer], rows: Sequence[Row]) -> dict[str, float]:
        true = np.array([label_id(self._ids, tag, row) for row in rows for tag in row.tags], np.int64)
        found = metrics.of_tags(self.decode(answers), [row.tags for row in rows], self.labels)
        return {**found, "loss": mean_cross_entropy(np.concatenate([probabilities(a) for a in answers]), true)}

    def report(self, answers: Sequence[Answer], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        return metrics.per_tag(self.decode(answers), [row.tags for row in rows], self.labels)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        counts = dict.fromkeys(self.labels, 0)
        for row in train:
            for tag in row.tags:
                counts[tag] += 1
        commonest = max(counts, key=lambda label: counts[label])
        return metrics.of_tags([[commonest] * len(row.tags) for row in rows], [row.tags for row in rows], self.labels)

    def is_collapsed(self, answers: Sequence[Answer], rows: Sequence[Row]) -> bool:
        """Whether all words got the same tag, but have several."""
        predicted = {tag for tags in self.decode(answers) for tag in tags}
        true = {tag for row in rows for tag in row.tags}
        return len(predicted) == 1 and len(true) > 1

    def decode(self, answers: Sequence[Answer]) -> list[list[str]]:
        """The tags of each sentence: the most probable legal sequence, or without a scheme and a CRF the most likely
        tag of each word. Probabilities [W, C] from elsewhere are decoded without the CRF."""
        return [[self.labels[i] for i in path] for path in self._paths(answers)]

    def named(self, rows: Dataset, owner: str) -> Dataset:
        return with_labels(rows, self.labels, owner)

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        def learn() -> Score:
            answers = tagger(train.rows, self.labels)
            return lambda rows: self.metrics(answers(rows), rows)

        return {"lexical": learn}

    def check_teachable(self) -> None:
        if self.crf:
            raise UnmaskError("A CRF scores whole sequences, without a distribution for each tag: distil without it.")

    def answer(self, row: Row, found: Answer) -> dict[str, Any]:
        """The words with their tags, and the spans that the tags mark (`tagged_words.tagged`)."""
        tags = self.decode([found])[0]
        likely = [float(p[self._ids[tag]]) for p, tag in zip(probabilities(found), tags, strict=True)]
        return tagged(row, self.labels, tags, likely)

    def compared(self, row: Row, found: Answer) -> tuple[str, str, float]:
        """The error is the share of words with another tag."""
        tags = self.decode([found])[0]
        wrong = sum(ours != theirs for ours, theirs in zip(tags, row.tags, strict=True))
        return " ".join(row.tags), " ".join(tags), wrong / max(1, len(tags))

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return "\n".join(f"{word['word']}\t{word['tag']}\t{word['probability']:.3f}" for word in answer["words"]) + "\n"

    def _paths(self, answers: Sequence[Answer]) -> list[list[int]]:
        plain = [answer for answer in answers if not isinstance(answer, Chosen)]
        if self._allowed is None or not plain:
            paths = [answer.argmax(-1).tolist() for answer in plain]
        else:
            # The floor keeps the scores of improbable tags above those of forbidden ones.
            scores = np.log(np.maximum(np.concatenate(plain), np.finfo(np.float32).tiny))
            paths = best_paths(scores, [len(answer) for answer in plain], *forbidden(self._allowed))
        rest = iter(paths)
        return [answer.best.tolist() if isinstance(answer, Chosen) else next(rest) for answer in answers]


def probabilities(answer: Answer) -> np.ndarray:
    """The probabilities [W, C] in the answer to a sentence."""
    return answer.probabilities if isinstance(answer, Chosen) else answer


def scheme_of(rows: Sequence[Row]) -> str | None:
    """The scheme of the tags of training rows; None for tags that do not mark spans.

    Raises UnmaskError for tags of two schemes.
    """
    return detect(row.tags for row in rows)


def _is_legal(values: np.ndarray, rules: Allowed | None) -> bool:
    """Whether the rules allow these tags [W] of a sentence."""
    if rules is None or not len(values):
        return True
    between = rules.between[values[:-1], values[1:]]
    return bool(between.all() and rules.begin[values[0]] and rules.end[values[-1]])

"""The peer in `tasks.py`, `transformers.Trainer`; and the scores of both sides, from folders opened with transformers.

Hyper-parameters and rows come from `tasks.py`; the encodings are those of the library's own examples: `run_glue.py`,
`run_ner.py`, `run_qa.py` and `run_swag.py`, with each batch padded to its own longest sequence.
"""

from __future__ import annotations

import re
import string
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bench import common
from bench.common import Result, Settings
from bench.trainer import arguments
from tasks_data import Record, records

IGNORED = -100
BEST = 20  # begins and ends of answers that are paired
CLASSES = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "question-answering": "BertForQuestionAnswering",
    "multiple-choice": "BertForMultipleChoice",
}


# ------------------------------------------------------------------------------------------------ training


def run_transformers(settings: Settings) -> Result:
    """Rows to a saved folder."""
    import transformers
    from transformers import AutoTokenizer, Trainer  # imports are not timed

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, CLASSES[settings["kind"]])
    began = time.perf_counter()
    transformers.set_seed(settings["seed"])  # decides the new head
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    rows = {split: records(settings[split]) for split in ("train", "dev")}
    labels = labels_of(settings["kind"], rows["train"])
    train, dev = (ENCODERS[settings["kind"]](rows[split], tokenizer, settings, labels) for split in rows)
    model = model_class.from_pretrained(settings["model"], **_outputs(settings["kind"], labels))
    steps = -(-len(train) // settings["batch"]) * settings["epochs"]
    trainer = Trainer(
        model=model,
        args=arguments(
            settings["out"],
            settings,
            num_train_epochs=settings["epochs"],
            per_device_train_batch_size=settings["batch"],
            per_device_eval_batch_size=64,
            warmup_steps=round(settings["warmup"] * steps),
        ),
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        data_collator=_collator(settings["kind"], tokenizer),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.evaluate()  # the other side looks at the dev rows before the first step and after the last, too
    trainer.train()
    trainer.evaluate()
    trainer.save_model(settings["out"])
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "steps": trainer.state.global_step, "peak_memory_mb": common.peak_memory()}


def labels_of(kind: str, train: Sequence[Record]) -> list[str]:
    """The classes or tags of the training rows, in the order of the outputs."""
    if kind == "classification":
        return sorted({row["label"] for row in train})
    return sorted({tag for row in train for tag in row["tags"]}) if kind == "tagging" else []


def _outputs(kind: str, labels: Sequence[str]) -> dict[str, Any]:
    if kind == "regression":
        return {"num_labels": 1, "problem_type": "regression"}
    named = {"num_labels": len(labels), "id2label": dict(enumerate(labels))}
    if kind == "classification":
        return {**named, "problem_type": "single_label_classification"}
    return named if kind == "tagging" else {}


def _collator(kind: str, tokenizer: Any) -> Any:
    import transformers

    if kind == "tagging":
        return transformers.DataCollatorForTokenClassification(tokenizer)
    if kind == "multiple-choice":
        return transformers.DataCollatorForMultipleChoice(tokenizer)
    return transformers.DataCollatorWithPadding(tokenizer)


# ------------------------------------------------------------------------------------------------ encoding

Encoder = Callable[[Sequence[Record], Any, Settings, Sequence[str]], list[Record]]


def encode_texts(rows: Sequence[Record], tokenizer: Any, settings: Settings, labels: Sequence[str]) -> list[Record]:
    """Texts, or pairs of them, with the number of a label or a score."""
    pairs = [row["pair"] for row in rows] if "pair" in rows[0] else None
    found = tokenizer([row["text"] for row in rows], pairs, truncation=True, max_length=settings["length"])
    numbers = {label: i for i, label in enumerate(labels)}
    values = [numbers[row["label"]] if labels else float(row["label"]) for row in rows]
    return [{**{key: found[key][i] for key in found}, "labels": value} for i, value in enumerate(values)]


def encode_words(rows: Sequence[Record], tokenizer: Any, settings: Settings, labels: Sequence[str]) -> list[Record]:
    """Sentences with a tag at the first piece of each word, cut to the longest length."""
    numbers = {label: i for i, label in enumerate(labels)}
    found = tokenizer(
        [row["words"] for row in rows], is_split_into_words=True, truncation=True, max_length=settings["length"]
    )
    encoded = []
    for i, row in enumerate(rows):
        own = found.word_ids(i)
        firsts = [word is not None and word != before for before, word in zip([None, *own[:-1]], own, strict=True)]
        tags = [
            # A tag that no training row has cannot be learned; the loss of the dev rows passes over it.
            numbers.get(row["tags"][word], IGNORED) if first else IGNORED
            for first, word in zip(firsts, own, strict=True)
        ]
        encoded.append({**{key: found[key][i] for key in found}, "labels": tags})
    return encoded


def encode_questions(rows: Sequence[Record], tokenizer: Any, settings: Settings, _: Sequence[str]) -> list[Record]:
    """Windows over the contexts with the tokens where the first answer begins and ends; [CLS] where it is not there."""
    found = windows(rows, tokenizer, settings)
    encoded = []
    for i, row in enumerate(found["overflow_to_sample_mapping"]):
        begin, end = _place(found, i, rows[row]["answers"])
        inputs = {key: found[key][i] for key in tokenizer.model_input_names if key in found}
        encoded.append({**inputs, "start_positions": begin, "end_positions": end})
    return encoded


def windows(rows: Sequence[Record], tokenizer: Any, settings: Settings) -> Any:
    """Questions with their contexts, cut into overlapping windows where they are too long."""
    return tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=settings["length"],
        stride=settings["stride"],
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def _place(found: Any, window: int, answers: Record) -> tuple[int, int]:
    if not answers["text"]:
        return 0, 0
    begin, end = answers["answer_start"][0], answers["answer_start"][0] + len(answers["text"][0])
    tokens = [
        token
        for token, (sequence, (low, high)) in enumerate(
            zip(found.sequence_ids(window), found["offset_mapping"][window], strict=True)
        )
        if sequence == 1 and low < end and high > begin
    ]
    offsets = found["offset_mapping"][window]
    # The answer must lie whole in the window.
    whole = tokens and offsets[tokens[0]][0] <= begin and offsets[tokens[-1]][1] >= end
    return (tokens[0], tokens[-1]) if whole else (0, 0)


def encode_choices(rows: Sequence[Record], tokenizer: Any, settings: Settings, _: Sequence[str]) -> list[Record]:
    """The context with each choice, which follows the question if there is one."""
    encoded = []
    for row in rows:
        seconds = [f"{row['question']} {choice}" if "question" in row else choice for choice in row["choices"]]
        firsts = [row["text"]] * len(seconds)
        found = tokenizer(firsts, seconds, truncation=True, max_length=settings["length"])
        encoded.append({**found, "labels": row["label"]})
    return encoded


ENCODERS: dict[str, Encoder] = {
    "classification": encode_texts,
    "regression": encode_texts,
    "tagging": encode_words,
    "question-answering": encode_questions,
    "multiple-choice": encode_choices,
}


# ------------------------------------------------------------------------------------------------ answers


def score(settings: Settings) -> Result:
    """The dev scores of a folder that either side wrote, opened with transformers in fp32."""
    import transformers

    transformers.logging.set_verbosity_error()
    kind, rows = settings["kind"], records(settings["dev"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    model = getattr(transformers, CLASSES[kind]).from_pretrained(settings["out"]).eval()
    answers = answers_of(model, rows, tokenizer, settings)
    return {"scores": scores(kind, rows, answers)}


def answers_of(model: Any, rows: Sequence[Record], tokenizer: Any, settings: Settings) -> list[Any]:
    """The model's answer to each row: a class, a score, tags, a text or the number of a choice."""
    kind = settings["kind"]
    if kind == "question-answering":
        return _spans(model, rows, tokenizer, settings)
    names = dict(model.config.id2label)
    if kind == "tagging":
        # No sentence is cut here that the model can take.
        settings = {**settings, "length": model.config.max_position_embeddings}
    encoded = ENCODERS[kind](rows, tokenizer, settings, [] if kind == "regression" else labels_of(kind, rows))
    values = [row.pop("labels") for row in encoded]
    collate = _collator(kind, tokenizer)
    if kind == "tagging":
        return _tags(_logits(model, encoded, _collator("classification", tokenizer)), rows, tokenizer, names, settings)
    if kind == "multiple-choice":
        encoded = [{**row, "labels": value} for row, value in zip(encoded, values, strict=True)]
    logits = _logits(model, encoded, collate)
    if kind == "regression":
        return [float(row[0]) for row in logits]
    found = [int(row.argmax()) for row in logits]
    return [names[i] for i in found] if kind == "classification" else found


def _logits(model: Any, encoded: Sequence[Record], collate: Any) -> list[Any]:
    """The logits of each row as arrays; for questions [2, tokens]."""
    import torch

    found: list[Any] = []
    with torch.no_grad():
        for i in range(0, len(encoded), 64):
            batch = collate([dict(row) for row in encoded[i : i + 64]])
            batch.pop("labels", None)
            output = model(**batch)
            logits = output.logits if "logits" in output else torch.stack([output.start_logits, output.end_logits], 1)
            found += list(logits.numpy())
    return found


def _tags(
    logits: Sequence[Any], rows: Sequence[Record], tokenizer: Any, names: dict[int, str], settings: Settings
) -> list[list[str]]:
    """The tag at the first piece of each word; "O" for words that were cut or have no piece."""
    inputs = [row["words"] for row in rows]
    found = tokenizer(inputs, is_split_into_words=True, truncation=True, max_length=settings["length"])
    answers = []
    for i, row in enumerate(rows):
        tags = ["O"] * len(row["words"])
        for place, word in reversed(list(enumerate(found.word_ids(i)))):
            if word is not None:
                tags[word] = names[int(logits[i][place].argmax())]  # the first piece comes last
        answers.append(tags)
    return answers


def _spans(model: Any, rows: Sequence[Record], tokenizer: Any, settings: Settings) -> list[str]:
    """The best span over the windows of a context, as `run_qa.py` finds it; "" where no answer scores higher."""
    found = windows(rows, tokenizer, settings)
    inputs = [{key: found[key][i] for key in tokenizer.model_input_names} for i in range(len(found["input_ids"]))]
    logits = _logits(model, inputs, _collator("question-answering", tokenizer))
    best: list[tuple[float, str]] = [(float("-inf"), "")] * len(rows)
    nothing = [float("inf")] * len(rows)
    for i, row in enumerate(found["overflow_to_sample_mapping"]):
        begins, ends = logits[i]
        nothing[row] = min(nothing[row], float(begins[0] + ends[0]))
        inside = {place for place, sequence in enumerate(found.sequence_ids(i)) if sequence == 1}
        pairs = [
            (float(begins[begin] + ends[end]), begin, end)
            for begin in begins.argsort()[: -BEST - 1 : -1]
            for end in ends.argsort()[: -BEST - 1 : -1]
            if begin in inside and end in inside and begin <= end < begin + settings["longest_answer"]
        ]
        if pairs and max(pairs)[0] > best[row][0]:
            value, begin, end = max(pairs)
            offsets = found["offset_mapping"][i]
            best[row] = (value, rows[row]["context"][offsets[begin][0] : offsets[end][1]])
    unanswerable = any(not row["answers"]["text"] for row in rows)
    return ["" if unanswerable and none > value else text for (value, text), none in zip(best, nothing, strict=True)]


# ------------------------------------------------------------------------------------------------ scores


def scores(kind: str, rows: Sequence[Record], answers: Sequence[Any]) -> dict[str, float]:
    """The usual metrics, by independent code."""
    if kind == "question-answering":
        return squad_scores(rows, answers)
    if kind == "regression":
        return _correlations([float(row["label"]) for row in rows], answers)
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    if kind == "tagging":
        return _tag_scores([row["tags"] for row in rows], answers)
    true = [row["label"] for row in rows]
    found = {"accuracy": float(accuracy_score(true, answers))}
    if kind == "classification":
        found["matthews"] = float(matthews_corrcoef(true, answers))
        if set(true) <= {"0", "1"}:
            found["f1"] = float(f1_score(true, answers, pos_label="1", zero_division=0))
    return found


def _correlations(true: Sequence[float], answers: Sequence[float]) -> dict[str, float]:
    from scipy.stats import pearsonr, spearmanr

    if len(set(answers)) == 1:  # a constant is correlated with nothing
        return {"pearson": 0.0, "spearman": 0.0}
    return {"pearson": float(pearsonr(answers, true)[0]), "spearman": float(spearmanr(answers, true)[0])}


def _tag_scores(true: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    from seqeval.metrics import accuracy_score, f1_score

    true, answers = [list(tags) for tags in true], [list(tags) for tags in answers]
    found = {"accuracy": float(accuracy_score(true, answers))}
    if all(tag == "O" or tag[:2] in ("B-", "I-") for tags in true for tag in tags):
        found["f1"] = float(f1_score(true, answers, zero_division=0))
    return found


def squad_scores(rows: Sequence[Record], answers: Sequence[str]) -> dict[str, float]:
    """Exact match and F1 by the rules of SQuAD: the best over the annotated answers, "" where there is none."""
    exact, overlap = [], []
    for row, answer in zip(rows, answers, strict=True):
        golds = [gold for gold in row["answers"]["text"] if _words(gold)] or [""]
        exact.append(max(_words(answer) == _words(gold) for gold in golds))
        overlap.append(max(_f1(_words(answer), _words(gold)) for gold in golds))
    return {"exact": sum(exact) / len(exact), "f1": sum(overlap) / len(overlap)}


def _words(text: str) -> list[str]:
    """Lower-case words without punctuation and articles."""
    bare = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    if not answer or not gold:
        return float(answer == gold)
    common_words = sum((Counter(answer) & Counter(gold)).values())
    return 2 * common_words / (len(answer) + len(gold))

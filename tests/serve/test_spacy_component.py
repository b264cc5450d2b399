"""The component of spaCy, against spaCy: entities at its tokens, categories, batches, saved pipelines."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import unmask
from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert

pytestmark = pytest.mark.extras
TEXTS = ["The film, by Ada  Lovelace,\nwas great.", " ", "Nobody came to Paris.", ""]
WORDS = "the film by ada lovelace was great nobody came to paris . ,".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tagger of entities, a tagger of parts of speech, a classifier and an encoder, hardly trained."""
    place = tmp_path_factory.mktemp("spacy")
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 5, 120)
    small = {"layers": 1, "dim": 16, "heads": 2, "hidden": 16, "std": 0.3}
    huggingface.save(place / "encoder", Bert(vocabulary=tokenizer.size, length=32, **small).build(), tokenizer)
    rows = {
        "entities": [{"words": ["Ada", "Lovelace", "came"], "tags": ["B-PER", "I-PER", "O"]},
                     {"words": ["Paris", "was", "great"], "tags": ["B-LOC", "O", "O"]}] * 10,
        "parts": [{"words": ["the", "film"], "tags": ["DET", "NOUN"]}, {"words": ["came"], "tags": ["VERB"]}] * 10,
        "topics": [("the film was great", "film"), ("paris was great", "place")] * 10,
    }  # fmt: skip
    for name, given in rows.items():
        task = "classification" if name == "topics" else "tagging"
        unmask.finetune(place / "encoder", given, out=place / name, task=task, epochs=4, least_steps=1, seeds=1,
                        learning_rate=1e-2, quiet=True, allow_overlap=True, precision="fp32")  # fmt: skip
    return place


def pipeline(**models):
    spacy = pytest.importorskip("spacy")
    import_module("unmask.serve.spacy_component")  # the entry point, where the package is installed
    nlp = spacy.blank("en")
    for name, model in models.items():
        nlp.add_pipe("unmask", name=name, config={"model": str(model), "precision": "fp32"})
    return nlp


def test_entities_and_categories_are_those_of_the_predictor(folders):
    nlp = pipeline(tagger=folders / "entities", topic=folders / "topics")
    docs = list(nlp.pipe(TEXTS, batch_size=2))
    tagger, topic = (unmask.Predictor(folders / name, precision="fp32") for name in ("entities", "topics"))
    found = 0
    for text, doc in zip(TEXTS, docs, strict=True):
        if not text.strip():
            assert not doc.ents
            assert not doc.cats
            continue
        words = [token.text for token in doc if not token.is_space]
        expected = tagger([{"text": text, "words": words}])[0]["entities"]
        assert [(span.start_char, span.end_char, span.label_) for span in doc.ents] == [
            (one["begin"], one["end"], one["kind"]) for one in expected
        ]
        assert doc.cats == pytest.approx(topic([text])[0]["scores"], abs=1e-6)
        found += len(doc.ents)
    assert found > 0
    assert nlp(TEXTS[0]).cats == pytest.approx(docs[0].cats, abs=1e-6)


def test_tags_without_spans_are_those_of_the_tokens(folders):
    doc = pipeline(tags=folders / "parts")("the film came")
    assert {token.tag_ for token in doc} <= {"DET", "NOUN", "VERB"}
    assert all(token.tag_ for token in doc)


def test_a_pipeline_is_saved_and_loaded(folders, tmp_path):
    import spacy

    nlp = pipeline(topic=folders / "topics")
    nlp.initialize()
    nlp.to_disk(tmp_path / "pipeline")
    other = spacy.load(tmp_path / "pipeline")
    copy = pipeline(topic=folders / "parts").from_bytes(nlp.to_bytes())
    for one in (other, copy):
        assert one(TEXTS[2]).cats == nlp(TEXTS[2]).cats
    assert str(folders / "topics") in repr(nlp.get_pipe("topic"))


def test_other_models_are_refused(folders):
    nlp = pipeline(encoder=folders / "encoder")
    with pytest.raises(UnmaskError, match="holds neither a tagger nor a classifier"):
        nlp("a text")
    with pytest.raises(UnmaskError, match="Give a model: nlp"):
        pipeline(nothing="")("a text")


def test_the_entry_point_is_the_factory():
    pytest.importorskip("spacy")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["spacy_factories"]["unmask"].partition(":")
    assert getattr(import_module(module), name).__name__ == "create"

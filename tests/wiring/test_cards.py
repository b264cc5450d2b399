"""The model card of every kind of run: its metadata as the hub's own library reads them, and its code, which runs."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import finetune_toy
import pages
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import huggingface
from unmask.cli import main, parser
from unmask.cli.parser import overrides
from unmask.config import read_json
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.huggingface import card as cards
from unmask.huggingface.card import Card, Opened, Score, is_unedited, with_metadata, write_card
from unmask.huggingface.opening import opened_by
from unmask.models import Transformer
from unmask.models.bert import Bert
from unmask.objectives import registry
from unmask.runs import cards as of_runs
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.finetuning.report import doubts
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.translation.config import Translation
from unmask.runs.translation.run import TrainTranslation
from unmask.runs.vocabulary_extension import extend
from unmask.runs.word_vectors.settings import Word2Vec
from unmask.runs.word_vectors.training import train
from unmask.tasks import TASKS
from unmask.train.metrics import read

package = pytest.importorskip("huggingface_hub")
SIZES = {"layers": 1, "dim": 8, "heads": 2, "hidden": 16, "length": 32}
WORDS = [*finetune_toy.GOOD, *finetune_toy.BAD, *finetune_toy.FILLER]


def metadata(folder: Path) -> tuple[package.ModelCardData, dict[tuple[str, str], float], str]:
    """The metadata of a card, its scores by split and metric, and its text."""
    card = package.ModelCard.load(folder / "README.md")
    found = card.data.eval_results or []
    return card.data, {(one.dataset_split, one.metric_type): one.metric_value for one in found}, card.text


def run_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the Python of a card beside its folder, and check its command. What the code prints."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(folder.parent)
    printed = io.StringIO()
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(folder), "exec"), {})
    for command in re.findall(r"```bash\nunmask (.*?)\n```", text, re.DOTALL):
        options, rest = parser().parse_known_args(shlex.split(command))
        assert options.model == folder.name
        assert not overrides(rest)
    return printed.getvalue()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    texts = [TextDocument(f"{i}", " ".join([*WORDS[i % 9 :], "."]) * 2) for i in range(40)]
    corpus.build(lambda: iter(texts), place / "reviews", vocabulary_size=90, heldout=0.2)
    config = Pretraining(model=Bert(vocabulary=1, **SIZES)).replace(training={"steps": 3, "precision": "fp32"})
    Pretrain(config, [place / "reviews"], place / "encoder", recipe="bert-tiny").run()
    return place / "encoder"


def test_pretraining(pretrained, monkeypatch):
    data, scores, text = metadata(pretrained)
    assert (data.library_name, data.pipeline_tag, data.base_model) == ("transformers", "fill-mask", None)
    assert {"unmask", "bert"} <= set(data.tags)
    last = read(pretrained / "metrics.jsonl", "heldout")[-1]
    assert scores["heldout", "mlm_loss"] == pytest.approx(last["loss/mlm"], abs=1e-5)
    assert scores["heldout", "mlm_accuracy"] == pytest.approx(last["mlm/correct"], abs=1e-5)
    assert "has hardly begun to use the context" in text
    manifest = read_json(pretrained.parent / "reviews" / "manifest.json")["splits"]
    assert f"Corpus `reviews`: train: documents {manifest['train']['documents']}" in text
    assert "| steps | 3 |" in text
    assert "'token_str'" in run_code(pretrained, monkeypatch)
    assert str(pretrained.parent) not in text  # no folder of this machine


def test_finetuning_and_what_a_person_edits(pretrained, tmp_path, monkeypatch):
    rows, out = finetune_toy.write_sets(tmp_path / "rows"), tmp_path / "mine"
    config = FineTuning(task="classification", model=pretrained, seeds=1)
    files = {name: rows / f"{name}.tsv" for name in ("train", "dev", "test")}
    result = finetune(config.replace(rows=files, fit={"epochs": 1.0, "least_steps": 1, "precision": "fp32"}), out)
    data, scores, text = metadata(out)
    assert (data.pipeline_tag, data.model_name) == ("text-classification", "mine")
    for split in ("dev", "test"):
        assert scores[split, "accuracy"] == pytest.approx(result.seeds[0][split]["accuracy"], abs=1e-6)
    assert "train: 64 rows of `train.tsv`" in text
    assert "It was trained from `encoder`, a model of the recipe bert-tiny." in text
    assert "Its 2 labels: 0, 1." in text
    assert "- f1 is that of the label 1." in text
    assert ("has hardly learned" in text) == bool(doubts(result.to_dict()))
    assert result.rows == {"train": 64, "dev": 24, "test": 24}
    assert "'label'" in run_code(out, monkeypatch)
    opened = opened_by(out, "text-classification")
    assert write_card(out, Card(), opened)  # as it was written here
    edited = (out / "README.md").read_text().replace("# mine", "# My model")
    (out / "README.md").write_text(edited)
    assert not is_unedited(out)
    assert not write_card(out, Card(), opened)
    assert (out / "README.md").read_text() == edited


def test_data_and_models_are_named_as_a_person_does(tmp_path):
    assert of_runs.files_name(["/a/b.txt", "c.txt", "hub:owner/name"], "corpus") == "b.txt, c.txt, hub:owner/name"
    assert of_runs.files_name([f"/a/books/{i}/x{i}.txt" for i in range(4)], "corpus") == "books"
    assert of_runs.files_name([f"{i}" for i in range(4)], "corpus") == "corpus"
    assert of_runs.files_name(["/a/b", "c", "d", "e"], "corpus") == of_runs.files_name([], "corpus") == "corpus"
    model = tmp_path / "model"
    model.mkdir()
    for title, name in (
        ("# all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("# owner/name", "owner/name"),
        ("# My model", "model"),
    ):
        (model / "README.md").write_text(f"---\nlanguage: en\n---\n\n{title}\n\n# more\n")
        assert (of_runs.name_of(model), of_runs.made(model)) == (name, "")


def test_translation(tmp_path, monkeypatch):
    model = Transformer(
        vocabulary=1, dim=8, encoder_layers=1, decoder_layers=1, encoder_heads=2, decoder_heads=2, encoder_hidden=8,
        decoder_hidden=8, positions="halves", output_bias=True,
    )  # fmt: skip
    config = Translation(model=model).replace(
        texts={"most": 60, "heldout": 8, "scored": 2},
        vocabulary={"size": 200},
        training={"steps": 2, "precision": "fp32"},
    )
    TrainTranslation(config, tmp_path / "dates").run()
    data, scores, text = metadata(tmp_path / "dates")
    assert data.library_name == "transformers"
    assert scores["dev", "exact"] == read(tmp_path / "dates" / "metrics.jsonl", "heldout")[-1]["exact"]
    assert "The model has hardly learned after 2 steps" in text
    assert f"It has {read_json(tmp_path / 'dates' / 'run.json')['parameters']:,} parameters" in text  # no sinusoids
    assert run_code(tmp_path / "dates", monkeypatch).startswith("[")
    (tmp_path / "dates" / "subwords.json").write_text("{}")
    opened = opened_by(tmp_path / "dates")
    assert "AutoTokenizer" not in opened.sections["transformers"]
    assert "no tokenizer for subwords.json" in opened.limits[0]


def test_word_vectors_and_larger_vocabularies(pretrained, tmp_path, monkeypatch):
    train([WORDS] * 9, Word2Vec(dim=4, epochs=1), out=tmp_path / "words", threads=1)
    data, _, text = metadata(tmp_path / "words")
    assert (data.library_name, data.pipeline_tag) == ("unmask", None)
    assert f"{len(WORDS)} word vectors of 4 numbers" in text
    assert "The vectors have hardly learned" in text
    assert run_code(tmp_path / "words", monkeypatch).startswith("[('")
    extend(pretrained, ["photosynthesis of chlorophyll"] * 9, 2, tmp_path / "larger", least=2)
    assert "2 new entries are means of others" in metadata(tmp_path / "larger")[2]


def test_a_sentence_encoder(pretrained, tmp_path, monkeypatch):
    loaded = huggingface.load(pretrained)
    settings = {"pooling": "mean", "normalise": True}
    huggingface.save(tmp_path / "vectors", loaded.model, loaded.tokenizer, settings=settings)
    write_card(tmp_path / "vectors", Card(pipeline="sentence-similarity"), opened_by(tmp_path / "vectors"))
    data, _, text = metadata(tmp_path / "vectors")
    assert ("no pooler" in text) == (loaded.model.pooler is None)
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert run_code(tmp_path / "vectors", monkeypatch).startswith("tensor")


def test_the_command_of_each_task_and_objective_is_one():
    commands = [("embed", f"{task.form.several} --out v.npy") for task in TASKS.values() if task.gives_vectors]
    commands += [("predict", task.form.example) for task in TASKS.values()]
    commands += [kind.command for kind in registry.OBJECTIVES if kind.command is not None]
    for verb, arguments in commands:
        options, rest = parser().parse_known_args([verb, "--model", "x", *shlex.split(arguments)])
        assert options.model == "x"
        assert not rest, (verb, arguments)
    for task in TASKS.values():
        [given] = shlex.split(task.form.example)
        if not Path(given).suffix or " " in given:  # a text, not a file
            assert task.form.as_row(task.form.from_line(given, 1), 1).place


values = st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(values, min_size=1), st.text(min_size=1))
def test_metadata_are_yaml(tags, name):
    """Whatever names a person chooses."""
    card = Card(task="x", scores=[Score(name, "dev", "f1", 0.5)], tags=[str(tag) for tag in tags], datasets=[name])
    text = cards.render("mine", card, Opened([], "unmask", {}))
    found = package.ModelCard(text).data
    assert found.tags == list(dict.fromkeys(["unmask", *card.tags]))
    assert found.datasets == [name]
    assert found.eval_results[0].dataset_name == name


def test_the_page_has_commands_that_exist():
    for command in pages.commands("folders"):
        options, rest = parser().parse_known_args(pages.words_of(command))
        assert callable(options.run)
        assert not rest, command


def test_a_field_of_the_metadata_is_replaced_and_the_rest_kept():
    text = "---\nlicense: mit\nlanguage:\n- en\n- de\ntags:\n- a\n---\n\n# A title\n\n---\nA line.\n"
    changed = with_metadata(text, {"license": "apache-2.0", "language": "fr"})
    assert package.ModelCard(changed).data.to_dict() == {"license": "apache-2.0", "language": "fr", "tags": ["a"]}
    assert changed.endswith("---\n\n# A title\n\n---\nA line.\n")
    with pytest.raises(UnmaskError, match=r"README\.md has no metadata"):
        with_metadata("# A title\n", {"license": "mit"})


def test_only_the_run_names_itself_in_json(pretrained, capsys):
    """The card follows the run: `push` uploads both."""
    main(["push", str(pretrained), "ann/encoder", "--dry-run", "--license", "mit"])
    assert "README.md" in capsys.readouterr().out
    assert json.loads((pretrained / "run.json").read_text())["kind"] == "pretraining"

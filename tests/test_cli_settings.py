"""--config and --print-config, the completion of shells, and remarks on models that have hardly learned."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib

import pytest

from unmask.cli import main
from unmask.cli.ending import suggest
from unmask.cli.labelled import _references
from unmask.cli.settings import toml
from unmask.config import flatten
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.report import doubts
from unmask.runs.report import weakness


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys, *arguments: str) -> dict:
    main([*arguments, "--print-config"])
    return tomllib.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "change", "place", "value"),
    [
        (["pretrain", "bert-tiny"], ["--max_steps", "7"], "training.steps", 7),
        (["pretrain", "simclr-tiny"], ["--crop", "0.5"], "objective.crop", 0.5),
        (["pretrain", "electra-tiny"], ["--lr", "1e-3"], "training.optimizer.lr", 1e-3),
        (["pretrain", "word2vec"], ["--dim", "9"], "dim", 9),
        (["finetune", "--task", "tagging"], ["--minutes", "3"], "fit.minutes", 3.0),
        (["train", "vit-tiny"], ["--epochs", "2"], "fit.epochs", 2.0),
        (["train", "transformer-tiny"], ["--steps", "9"], "training.steps", 9),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "",
)
def test_what_is_printed_is_read_again_and_options_change_it(arguments, change, place, value, folder, capsys):
    first = printed(capsys, *arguments)
    (folder / "run.toml").write_text(toml(first))
    found = printed(capsys, arguments[0], "--config", "run.toml", *change)
    before, after = ({**flatten(values)} for values in (first, found))
    assert after.pop(f"config.{place}") == value != before.pop(f"config.{place}")
    for other in ("training.minutes", "fit.minutes", "fit.epochs"):  # a run has one length
        if place.endswith(("steps", "minutes", "epochs")):
            assert after.pop(f"config.{other}", "none") in ("none", value)
            before.pop(f"config.{other}", None)
    assert after == before


def test_the_settings_that_a_run_writes_are_those_that_it_had(folder, capsys):
    """run.json has null for what is not set, and facts beside the config."""
    config = recipes.find("gpt-tiny").override({"steps": None, "minutes": "2", "dropout": "0.3"})
    facts = {"kind": "pretraining", "recipe": "gpt-tiny", "model": "Gpt", "parameters": 7, "corpora": ["corpora/mine"]}
    (folder / "run.json").write_text(json.dumps({**facts, "config": config.to_dict()}))
    found = printed(capsys, "pretrain", "--config", "run.json")
    assert found["corpora"] == ["corpora/mine"]
    assert recipes.find("gpt-tiny").resumed({"model": "Gpt", **found}) == config
    with pytest.raises(SystemExit):
        main(["pretrain", "bert-tiny", "--config", "run.json", "--print-config"])
    assert "run.json: This run is one of 'gpt-tiny', not 'bert-tiny'" in capsys.readouterr().err


def test_a_short_file_has_options_and_any_name_of_a_field(folder, capsys):
    (folder / "run.yaml").write_text(
        "recipe: bert-tiny\ncorpus: [a, b]\nlearning_rate: 1e-4\nmax_steps: 5\nobjective: {rate: 0.3}\nbatch_size: 4\n"
    )
    found = printed(capsys, "pretrain", "--config", "run.yaml", "--rate", "0.4")
    changes = {"lr": 1e-4, "steps": 5, "minutes": None, "rate": 0.4, "batch": 4}
    assert found["corpora"] == ["a", "b"]
    assert recipes.find("bert-tiny").resumed({"model": "Bert", **found}) == recipes.find("bert-tiny").override(changes)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ('recipe = "transformer-tiny"\nsteps = 100\nmax_length = 64', "transformer-tiny --steps 100 --max-length 64"),
        ('recipe = "transformer-tiny"\npairs = "a.tsv"\nlr = 1e-3', "transformer-tiny --pairs a.tsv --lr 1e-3"),
        ('recipe = "bilstm-classifier"\nepochs = 5', "bilstm-classifier --epochs 5"),
        ('recipe = "vit-tiny"\nminutes = 3', "vit-tiny --minutes 3"),
    ],
)
def test_a_short_file_means_what_the_same_options_mean(content, options, folder, capsys):
    (folder / "run.toml").write_text(content)
    assert printed(capsys, "train", "--config", "run.toml") == printed(capsys, "train", *options.split())


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.toml", "out = 5", "x.toml: out must be text, not a number."),
        ("x.toml", "corpus = [1]", "x.toml: corpus must be a list of texts, not a list."),
        ("x.toml", "resume = 3", "x.toml: resume must be true or false, not a number."),
        ("x.toml", 'run = "a"', "x.toml: There is no field 'run'"),
        ("x.yaml", "5: 3", "x.yaml: a name must be text, not 5."),
        ("x.yaml", "a: " + "[" * 5000, "x.yaml is not valid YAML: "),
        (
            "x.toml",
            "[training]\nstepz = 3",
            "x.toml: There is no field 'training.stepz'; did you mean 'training.steps'?",
        ),
        ("x.toml", 'steps = "many"', "x.toml: steps must be a whole number or none, not 'many'."),
        ("x.toml", "steps =", "x.toml is not valid TOML: Invalid value (at "),
        ("x.yaml", "a: [", "x.yaml is not valid YAML: "),
        ("x.yaml", "- a", "x.yaml must hold names with values, not a list."),
        ("x.json", "[]", "x.json must hold a JSON object, not a list."),
        ("x.json", '{"config": {"training": {"steps": "x"}}}', "x.json: training.steps must be a whole number or none"),
        (
            "x.toml",
            "[config.training.optimizer]\nlrr = 3",
            "x.toml: There is no field of training.optimizer 'lrr'; did you mean 'lr'?",
        ),
        ("x.yaml", "config: {objective: {kind: rotation, copy: 1}}", "x.yaml: There is no field of objective 'copy'"),
        ("x.yaml", "a: !!python/object/apply:os.system [ls]", "x.yaml is not valid YAML: "),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_it(name, content, sentence, folder, capsys):
    (folder / name).write_text(content)
    with pytest.raises(SystemExit) as exit:
        main(["pretrain", "bert-tiny", "--config", name, "--print-config"])
    assert exit.value.code == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        (["pretrain", "bert-tiny"], ["train"]),
        (["pretrain", "word2vec"], ["finetune"]),
        (["train", "transformer-tiny"], ["finetune"]),
        (["train", "resnet-tiny"], ["pretrain"]),
        (["finetune", "--task", "tagging"], ["pretrain", "bert-tiny"]),
        (["finetune"], ["train"]),
    ],
    ids=" ".join,
)
def test_settings_of_another_verb_name_that_verb(wrote, reads, folder, capsys):
    (folder / "run.toml").write_text(toml(printed(capsys, *wrote)))
    with pytest.raises(SystemExit):
        main([*reads, "--config", "run.toml"])
    assert f"run.toml has the settings of unmask {wrote[0]}: give them to unmask {wrote[0]} --config run.toml." in (
        capsys.readouterr().err
    )


def test_a_run_that_continues_takes_no_file(capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--out", "out", "--resume", "--config", "none.toml"])
    assert "leave --config or --resume out" in capsys.readouterr().err


def test_bash_completes_verbs_options_and_their_values(folder, capsys):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    main(["completion", "bash"])
    (folder / "unmask.bash").write_text(capsys.readouterr().out)
    asked = (
        "source unmask.bash; for words in 'fine' 'pretrain --learning-r' 'corpus bui' 'predict --precision fp3' "
        "'pretrain albert-t' 'train captio' 'finetune --task tagg' 'serve --backend onn' 'pretrain --algorithm mu' "
        "'finetune --strategy lo' 'train --metric rou' 'baseline --benchmark MNLI-mm' 'pretrain --patches jig'; do "
        'COMP_WORDS=(unmask $words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_unmask; echo "${COMPREPLY[@]}"; done'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=20)
    values = ["albert-tiny", "captioner", "tagging", "onnx", "muon", "lora", "rouge", "MNLI-mm", "jigsaw"]
    assert done.stdout.split() == ["finetune", "--learning-rate", "build", "fp32", *values]


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef unmask"), ("fish", "")])
def test_other_shells_have_every_verb(shell, begins, capsys):
    main(["completion", shell])
    out = capsys.readouterr().out
    assert out.startswith(begins)
    assert all(word in out for word in ("finetune", "learning-rate", "vocabulary"))


@pytest.mark.parametrize(("loss", "said"), [(4.99, "has hardly begun to use the context"), (2.0, None)])
def test_a_model_that_has_hardly_learned_is_called_that(loss, said, folder, monkeypatch, capsys):
    model = folder / "model"
    model.mkdir()
    (model / "run.json").write_text(json.dumps({"kind": "pretraining", "baseline": {"loss/mlm": 5.0}, "config": {}}))
    row = {"step": 9, "seconds": 1.0, "split": "heldout", "loss/mlm": loss}
    (model / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert (said in weakness(model)) if said else weakness(model) is None
    for seen in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda seen=seen: seen)
        with pytest.raises(SystemExit):
            main(["predict", "--model", "model", "a text"])  # it has no weights
        assert ("has hardly begun" in capsys.readouterr().err) is bool(seen and said)


@pytest.mark.parametrize(("accuracy", "said"), [(0.5, "has hardly learned: its accuracy"), (0.51, None)])
def test_a_fine_tuned_folder_is_compared_with_its_baseline(accuracy, said, tmp_path):
    (tmp_path / "run.json").write_text('{"kind": "finetuning", "config": {}}')
    seeds = [{"seed": 3, "dev": {"accuracy": 0.9}}, {"seed": 4, "dev": {"accuracy": accuracy}}]
    results = {"metric": "accuracy", "baseline": {"dev": {"accuracy": 0.5}}, "seeds": seeds, "kept": 4}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert (said in weakness(tmp_path)) if said else weakness(tmp_path) is None
    rows = {"train": "my rows.tsv", "dev": "dev.tsv", "text": "review"}
    command = "baseline --task classification --train 'my rows.tsv' --dev dev.tsv --text review"
    assert _references(FineTuning().replace(rows=rows), tmp_path) == ([command] if said else [])
    (tmp_path / "results.json").write_text(json.dumps(results | {"kept": 5}))
    assert weakness(tmp_path) is None  # damaged


@pytest.mark.parametrize(("rows", "doubted"), [(2_498, True), (2_504, False)])
def test_a_gain_within_its_standard_error_is_doubted(rows, doubted):
    """sqrt(0.51 * 0.49 / n) = 0.01, the gain, at n = 2,499."""
    seeds = [{"seed": 0, "dev": {"accuracy": 0.51}}]
    results = {"metric": "accuracy", "baseline": {"dev": {"accuracy": 0.5}}, "seeds": seeds, "kept": 0}
    said = doubts(results | {"rows": {"dev": rows}})
    assert [("within a standard error (0.0100)" in one, "--lr" in one) for one in said] == [(True, True)] * doubted


def test_a_next_command_beside_data_is_for_a_person_alone(monkeypatch, capsys):
    for seen in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda seen=seen: seen)
        suggest("predict --model runs/a INPUT", beside=True)
        assert capsys.readouterr() == ("", "Next: unmask predict --model runs/a INPUT\n" if seen else "")


def test_a_folder_without_a_run_is_not_judged(folder):
    assert weakness(folder) is None
    (folder / "run.json").write_text('{"kind": "translation"}')
    assert weakness(folder) is None

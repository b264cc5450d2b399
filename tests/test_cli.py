"""The command line: what is wrong is one sentence on stderr and status 2, and nothing is written."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import signal
import sys

import pytest

from unmask.cli import main, parser
from unmask.errors import UnmaskError
from unmask.train.interrupt import Interrupt


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("One document.\n\nAnother document.\n")
    (tmp_path / "not-a-model").mkdir()
    (tmp_path / "not-a-model" / "config.json").write_text("{}")
    return tmp_path


def written(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


PRETRAIN = ["pretrain", "bert-tiny", "--corpus", "missing", "--out", "out"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "required: verb"),
        (["pretrian"], "There is no verb of unmask: 'pretrian'; did you mean 'pretrain'?"),
        (["hlep"], "There is no verb of unmask: 'hlep'; did you mean 'help'?"),
        (["help", "pretrian"], "There is no verb of unmask: 'pretrian'; did you mean 'pretrain'?"),
        (["help", "corpus", "biuld"], "did you mean 'build'?"),
        (
            ["finetune", "--task", "clasification"],
            "no task 'clasification'; did you mean 'classification'?",
        ),
        (["finetune", "--task", "NER"], "There is no task 'NER': it is called 'tagging' here."),
        (["finetune", "--task", "sentiment_analysis"], "it is called 'classification' here."),
        (["pretrain", "bert-tiny", "--corpus", "corpora/nope"], "There is no corpus corpora/nope. Build one: unmask"),
        (
            ["finetune", "--model", "--train", "x"],
            "--model: expected one argument; see unmask finetune --help",
        ),
        (["finetune", "--strategy", "fronzen"], "did you mean 'frozen'?"),
        (["generate", "--format", "json", "a text"], "There is no field 'format'"),
        (["corpus", "check", "text.txt", "--encoding", "utf8x"], "There is no encoding 'utf8x'; did you mean 'utf-8'?"),
        (["corpus"], "required: verb"),
        (["corpus", "biuld"], "did you mean 'build'?"),
        (["--verison"], "did you mean '--version'?"),
        (["serve", "--prot", "80"], "There is no option of unmask serve: '--prot'; did you mean '--port'?"),
        (["finetune", "--resmue"], "did you mean '--resume'?"),
        (
            ["predict", "--modle", "x", "a text"],
            "There is no option of unmask predict: '--modle'; did you mean '--model'?",
        ),
        (["predict", "--model", "x", "--tpo=3", "a text"], "did you mean '--top'?"),
        (["predict", "--model", "x", "--top", "many", "a text"], "--top must be a whole number, not 'many'"),
        (["quickstart", "--minutes", "nan", "--out", "out"], "--minutes must be a number, not 'nan'"),
        (["evaluate", "--model", "x", "--text", "y", "--out", "out"], "--out needs --data: it has no effect with"),
        (["evaluate", "--model", "x", "--data", "y", "--as-corpus"], "--as-corpus needs --text"),
        (["evaluate", "--model", "x", "--text", "y", "--shots", "0"], "--shots needs --data"),
        (["evaluate", "--model", "x", "--data", "y", "--examples", "z"], "give their number with --shots K"),
        (["predict", "a text"], "required: --model"),
        (["predict", "--model", "x", "-k", "a text"], "'-k' is not understood"),
        (["corpus", "check", "text.txt", "--workers", "2"], "Texts are checked by one process: leave --workers out."),
        (["corpus", "build", "text.txt", "--out", "c", "--workers", "0"], "must be at least 1, not 0"),
        (["corpus", "check", "text.txt", "--jsn"], "did you mean '--json'?"),
        (["corpus", "check", "text.txt", "--per", "lines"], "did you mean 'line'?"),
        (["recipes", "now"], "'now' is not understood"),
        (["pretrain"], "Say which run: one of"),
        (["pretrain", "bert-minni"], "There is no recipe 'bert-minni'; did you mean 'bert-mini'?"),
        (["pretrain", "find"], "There is no recipe 'find'"),
        (["pretrain", "bert-tiny", "--stepz", "3"], "There is no field 'stepz'; did you mean 'steps'?"),
        (["pretrain", "bert-tiny", "--steps", "many"], "--steps must be a whole number or none, not 'many'"),
        (["pretrain", "bert-tiny", "--training.steps=many"], "--training.steps must be a whole number or none"),
        (["pretrain", "bert-tiny", "--batch-size", "many"], "--batch-size must be a whole number, not 'many'"),
        (["finetune", "--batch", "many"], "--batch must be a whole number, not 'many'"),
        (["finetune", "--search", "--grid.batch-size", "x", "--model", "m", "--out", "out"], "--grid.batch-size must"),
        (["generate", "--top-p", "2", "a text"], "unmask: top_p (--top-p) must be above 0 and at most 1 (all tokens)"),
        (["pretrain", "bert-tiny", "--sentences", "previous"], "one of next, order, none"),
        (["pretrain", "bert-tiny", "extra"], "'extra' is not understood"),
        (PRETRAIN, "missing"),
        ([*PRETRAIN, "--dry-run"], "missing"),
        ([*PRETRAIN, "--resume"], "There is nothing to resume in out; omit --resume to start a new run"),
        (["pretrain", "bert-tiny", "--resume"], "There is nothing to resume in runs/bert-tiny"),
        (["pretrain", "word2vec", "--resume"], "There is nothing to resume in runs/word2vec"),
        (["train", "transformer-tiny", "--resume"], "There is nothing to resume in runs/transformer-tiny"),
        (["finetune", "--out", "out", "--resume"], "There is nothing to resume in out"),
        (["finetune", "--search", "--out", "out", "--resume"], "There is nothing to resume in out"),
        (["finetune", "--curve", "10", "--out", "out", "--resume"], "There is nothing to resume in out"),
        ([*PRETRAIN[:3], "text.txt", "--out", "out"], "text.txt"),
        ([*PRETRAIN[:3], "not-a-model", "--out", "out"], "not-a-model"),
        (["corpus", "build", "--data", "missing.txt", "--out", "out"], "missing.txt"),
        (["corpus", "build", "--data", "text.txt", "--out", "out", "--vocabulary-size", "-5"], "-5"),
        (["corpus", "build", "--data", "text.txt", "--out", "out", "--tokenizer", "missing"], "missing"),
        (["corpus", "build", "--data", "text.txt"], "required: --out"),
        (["corpus", "build", "--data", "text.txt", "--out", "out", "--part", "1/2"], "need the same vocabulary"),
        (["corpus", "vocabulary", "text.txt", "--out", "out", "--part", "3/2"], "must be I/N with I from 1 to N"),
        (["corpus", "vocabulary", "text.txt", "--out", "out", "--vocabulary-size", "3"], "3"),
        (["corpus", "vocabulary", "--out", "out"], "give files or folders with --data"),
        (["corpus", "build", "--data", "text.txt", "--out", "memory://out"], "is an address"),
        (["corpus", "build", "--data", "s4://text.txt", "--out", "out"], "s4://text.txt cannot be opened"),
        (["corpus", "merge", "out"], "There are no parts in"),
        (["corpus", "check", "missing.txt"], "missing.txt"),
        (["finetune"], "--out FOLDER"),
        (["finetune", "--out", "out"], "--model"),
        (["finetune", "--out", "out", "--rank", "16"], "--rank is for --strategy lora; 'auto' has no use for it"),
        (["finetune", "--out", "out", "--strategy", "lora", "--layers", "3"], "--layers is for --strategy top; 'lora'"),
        (["finetune", "--out", "out", "--temperature", "4"], "--temperature needs a teacher"),
        (["finetune", "--out", "out", "--balance", "weights", "--gamma", "3"], "--gamma is for the focal loss"),
        (["finetune", "--out", "out", "--modle", "missing"], "did you mean 'model'?"),
        (["finetune", "--out", "out", "--model", "missing", "--train", "missing.tsv"], "missing"),
        (["baseline"], "--train FILE"),
        (["probe"], "--model FOLDER"),
        (["baseline", "--train", "missing.tsv"], "There is no file missing.tsv"),
        (["baseline", "--train", "missing.tsv", "--model", "missing"], "There is no field 'model'"),
        (["evaluate", "--model", "missing", "--data", "missing.tsv"], "missing"),
        (["evaluate", "--modle", "missing", "--data", "missing.tsv"], "did you mean '--model'?"),
        (["evaluate", "--label", "kind", "--data", "missing.tsv"], "required: --model"),
        (["finetune", "--model", "missing", "--search", "--advise"], "--advise: not allowed with argument --search"),
        (["finetune", "--model", "missing", "--search", "few", "--out", "out"], "'few'"),
        (["submit", "--models", "missing", "--data", "missing", "--out", "out"], "does not name its task"),
        (["submit", "--models", "RTE=missing", "--data", "missing", "--out", "out"], "missing"),
        (["submit", "--data", "missing", "--out", "out"], "required: --models"),
        (["glue-table", "missing"], "There is no file or folder missing"),
        (["glue-table", "RTE=missing"], "missing"),
        (["evaluate", "--model", "not-a-model", "--data", "missing.tsv"], "no model_type"),
        (["predict", "--model", "missing", "a text"], "There is no model folder missing"),
        (["predict", "--model", "not-a-model", "a text"], "no model_type"),
        (["report", "missing"], "There is no folder missing"),
        (["show", "run", "missing", "--out", "page.html"], "There is no folder missing"),
        (["report", "not-a-model", "--no-open"], "not-a-model"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments, sentence, folder, capsys):
    before = written(folder)
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    out, err = capsys.readouterr()
    assert exit.value.code == 2
    assert err.startswith("unmask: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""
    assert written(folder) == before


def test_interruption_has_its_own_status(monkeypatch, capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unmask.runs.recipes.names", interrupted)
    with pytest.raises(SystemExit) as exit:
        main(["recipes"])
    assert exit.value.code == 130
    assert capsys.readouterr().err == "unmask: Interrupted.\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("refused", [False, True])
def test_a_run_that_a_signal_ended_has_its_status(number, status, refused, monkeypatch, capsys):
    """A run is saved and ends in order, or says that it goes on by the same command; neither is a run that is done."""

    def stopped() -> dict[str, str]:
        with Interrupt() as interrupt:
            signal.raise_signal(number)
        if refused:
            raise UnmaskError(f"Stopped by {interrupt.name}; the same command goes on.")
        return {}

    monkeypatch.setattr("unmask.runs.recipes.names", stopped)
    with pytest.raises(SystemExit) as exit:
        main(["recipes"])
    assert exit.value.code == status
    monkeypatch.undo()
    main(["recipes"])  # the next one is none of it


def test_a_refusal_of_the_file_system_is_a_sentence(monkeypatch, capsys):
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "runs/mine")

    monkeypatch.setattr("unmask.runs.recipes.names", refuse)
    with pytest.raises(SystemExit) as exit:
        main(["recipes"])
    assert exit.value.code == 2
    error = "The operating system reports an error for runs/mine: Permission denied."
    assert capsys.readouterr().err == f"unmask: {error}\n"


def test_an_error_of_ours_keeps_its_traceback(monkeypatch):
    def wrong() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("unmask.runs.recipes.names", wrong)
    with pytest.raises(ZeroDivisionError):
        main(["recipes"])


def test_recipes_are_listed_with_what_they_are(capsys):
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:1] == ["unmask pretrain NAME"]
    assert lines[1].startswith("bert-tiny ")
    assert "unmask train NAME" in lines
    named = [line for line in lines if line and not line.startswith("unmask ")]
    assert all(len(line.split(maxsplit=1)) == 2 for line in named)
    assert len({len(line) - len(line.split(maxsplit=1)[1]) for line in named}) == 1, "one column of names"


def test_the_lists_of_version_0_1_are_parts_of_one(capsys):
    main(["recipes", "--of", "train"])
    trained = capsys.readouterr().out
    assert re.search(r"(?m)^transformer-tiny ", trained)
    assert not re.search(r"(?m)^bert-tiny ", trained)
    main(["systems"])
    assert capsys.readouterr().out == trained


@pytest.mark.parametrize(
    ("recipe", "algorithm"), [("bert-mini", "adamw"), ("bert-mini", "auto"), ("bert-small", "muon")]
)
def test_another_algorithm_asks_for_a_rate_of_its_own(recipe, algorithm, capsys):
    from unmask.runs import recipes

    asked = ["pretrain", recipe, "--algorithm", algorithm, "--fields"]
    with pytest.raises(SystemExit):
        main(asked)
    assert "because Muon and AdamW need different rates (bert-mini 2e-3 and 1e-3): set --lr" in capsys.readouterr().err
    rate = str(recipes.find(recipe).training.optimizer.lr)
    main([*asked, "--training.optimizer.lr", rate])
    assert f"--training.optimizer.lr {rate}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("group", ["corpus", "vocabulary", "words", "show", "glue"])
def test_a_group_of_verbs_says_what_it_is_for(group, capsys):
    with pytest.raises(SystemExit):
        main([group, "--help"])
    assert ".\n" in capsys.readouterr().out.split("\n\n")[1] + "\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pretrain", "bert-tiny", "--fields"], "--model.layers 2"),
        (["pretrain", "bert-tiny", "--fields", "--steps", "7"], "--training.steps 7"),
        (["pretrain", "bert-tiny", "--fields", "--steps=7"], "--training.minutes None"),
        (["pretrain", "bert-tiny", "--fields", "--training.minutes", "2"], "--training.minutes 2.0"),
        (["pretrain", "bert-tiny", "--fields", "--whole-words"], "--objective.whole_words True"),
        (["pretrain", "bert-tiny", "--fields", "--sentences", "order"], "--sentences order"),
        (["pretrain", "bert-tiny", "--fields", "--batch-size", "7"], "--rows.batch 7"),
        (["pretrain", "bert-tiny", "--fields", "--batch", "7"], "--rows.batch 7"),
        (["finetune", "--fields", "--batch=7"], "--fit.batch_size 7"),
        (["finetune", "--fields", "--batch-size=7"], "--fit.batch_size 7"),
        (["baseline", "--fields", "--text", "review"], "--rows.text review"),
    ],
)
def test_fields_show_what_a_run_would_use(arguments, line, capsys):
    main(arguments)
    shown = [" ".join(shown.split()) for shown in capsys.readouterr().out.splitlines()]
    assert line in shown


@pytest.mark.parametrize(
    "arguments", [["--help"], ["corpus", "build", "--help"], ["pretrain", "--help"], ["--version"]]
)
def test_help_and_version_end_well(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert not exit.value.code
    assert "unmask" in capsys.readouterr().out


def verbs(of, name="unmask"):
    """(name, parser) of every verb that is for people."""
    groups = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name, of
    for group in groups:
        for action in group._choices_actions:
            yield from verbs(group.choices[action.dest], f"{name} {action.dest}")


@pytest.mark.parametrize(("name", "verb"), [pytest.param(*found, id=found[0]) for found in verbs(parser())])
def test_help_says_of_every_option_what_it_is_and_its_default(name, verb):
    shown = " ".join(verb.format_help().split())
    for action in verb._actions:
        assert action.help, (name, action.dest)
        if not action.option_strings or action.nargs == 0:
            continue
        assert action.metavar or action.choices or action.type in (int, float), (name, action.dest)
        if isinstance(action.default, (int, float)) and action.default is not False and action.dest != "threads":
            assert f"default: {action.default}" in shown, (name, action.dest)


def configs_of_verbs():
    """Verb -> the configs that take its fields."""
    from unmask.data.text.cleaning.config import Pipeline
    from unmask.generate import Search
    from unmask.runs import recipes, supervised_recipes
    from unmask.runs.clustering import Iterations, LabelMaking
    from unmask.runs.finetuning import FineTuning
    from unmask.runs.finetuning.baselines import Baselines
    from unmask.runs.finetuning.probing import Probing
    from unmask.runs.in_context import InContext
    from unmask.runs.speedrun import Race
    from unmask.runs.translation import systems
    from unmask.serve.continuation import sampling, searching

    return {
        "unmask pretrain": [recipes.find("bert-tiny")],
        "unmask finetune": [FineTuning()],
        "unmask baseline": [Baselines()],
        "unmask probe": [Probing()],
        "unmask train": [systems.find("transformer-tiny"), supervised_recipes.find("vit-tiny")],
        "unmask corpus pipeline": [Pipeline()],
        "unmask cluster": [LabelMaking(), Iterations(), recipes.find("hubert-tiny")],
        "unmask evaluate": [InContext(), Search()],
        "unmask export": [InContext()],
        "unmask translate": [Search()],
        "unmask generate": [sampling(), searching()],
        "unmask speedrun": [recipes.find("bert-tiny"), Race()],
    }


def test_the_fields_that_help_lists_exist_and_have_these_defaults():
    from unmask.cli.help import Field, choices_of
    from unmask.config import SAME

    known = configs_of_verbs()
    others = {"batch_size": ["rows.batch"]}  # names that verbs know for fields
    for name, verb in verbs(parser()):
        listed = [action for action in verb._actions if isinstance(action, Field)]
        assert bool(listed) == (name in known), name
        owners = [config.owners() for config in known.get(name, [])]
        for action in listed:
            field = action.option_strings[0][2:].replace("-", "_")
            wanted = [field, *others.get(field, []), *SAME.get(field, ())]
            found = [
                owner for places in owners for one in wanted for place, owner in places.items()
                if place == one or place.endswith(f".{one}")
            ]  # fmt: skip
            assert found, (name, action.option_strings)
            owner, own = found[0]
            if "of the " not in str(action.default_shown) and isinstance(action.default_shown, (int, float)):
                assert action.default_shown in [getattr(*one) for one in found], (name, field)
            if action.choices:
                assert set(action.choices) == set(choices_of(owner, own)), (name, field)


def every_config():
    from unmask.huggingface.config import TABLES
    from unmask.objectives.registry import CHOOSABLE
    from unmask.runs.word_vectors import Word2Vec
    from unmask.serve.http.settings import Settings
    from unmask.tasks import TASKS, task_named

    yield from (config for configs in configs_of_verbs().values() for config in configs)
    yield from (kind() for kind in CHOOSABLE)
    yield from (Word2Vec(), Settings())
    for name in TASKS:
        task = task_named(name)
        yield from (task.rows_class(), task.options_class(), task.scoring_class())
    yield from (table.config() for table in TABLES.values())


def test_every_field_has_a_description():
    missing = {
        (type(owner).__name__, name)
        for config in every_config()
        for owner, name in config.owners().values()
        if not type(owner).field_help()[name]
    }
    assert not missing


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["pretrain"],
            ["what is learned: masked tokens", "to learn views of pictures", "training.optimizer", "--warmup"],
        ),
        (["pretrain", "gpt-tiny"], ["It learns", "--lr", "number of blocks (default: 2)"]),
        (["pretrain", "word2vec"], ["word2vec", "--min-count N"]),
        (["finetune"], ["fit.optimizer", "--rank N", "--layer-decay X"]),
        (["finetune", "--task", "tagging"], ["--task tagging"]),
        (["baseline"], ["rows", "--stratify YES"]),
        (["probe"], ["--stratify YES"]),
        (["train", "transformer-tiny"], ["search.limits", "learning", "--label-smoothing X"]),
        (["train", "vit-tiny"], ["page", "--mixup X"]),
        (["cluster"], ["clustering", "--attempts N"]),
        (["corpus", "pipeline"], ["minhash", "--ngram N", "--last-memory N"]),
        (["evaluate"], ["--template NAME", "--normalise NAME"]),
        (["translate"], ["with --sample", "--diversity X"]),
        (["generate"], ["blocking", "--repetition-penalty X"]),
        (["serve"], ["limits"]),
        (["predict"], ["--top N"]),
    ],
    ids=lambda value: " ".join(value) if value[0].isalpha() else "",
)
def test_the_long_help_lists_all_fields_in_groups(arguments, parts, capsys):
    with pytest.raises(SystemExit) as exit:
        main([*arguments, "--help-all"])
    assert not exit.value.code
    out = capsys.readouterr().out
    for part in parts:
        assert part in " ".join(out.split()), part
    assert not re.search(r"(?m)^  (--[\w.-]+) [A-Z]*\n(?!   )", out), "an option without a description"


def test_verbs_are_in_groups_by_what_a_person_wants():
    from unmask.cli import SECTIONS

    shown = [name.split()[1] for name, _ in verbs(parser())]
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(set(shown))


@pytest.mark.parametrize("verb", ["submit", "glue-table", "units", "systems"])
def test_verbs_of_version_0_1_still_work_and_are_not_listed(verb, capsys):
    assert f"\n  {verb} " not in parser().format_help()
    with pytest.raises(SystemExit) as exit:
        main([verb, "--help"])
    assert not exit.value.code
    assert f"usage: unmask {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["finetune", "--update-freq", "2"], "There is no --update-freq here: --batch-size counts the rows of a step"),
        (["finetune", "--max-steps", "9"], "There is no --max-steps here: --epochs or --minutes sets the length"),
        (["predict", "--gpus", "2"], "There is no --gpus here: torchrun"),
        (["pretrain", "bert-tiny", "--overwrite-output-dir"], "no run is overwritten; choose another --out"),
    ],
)
def test_an_option_of_another_tool_is_answered_with_what_to_do(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert sentence in capsys.readouterr().err


def test_options_of_other_tools_are_understood(capsys):
    main(
        ["pretrain", "bert-tiny", "--fields", "--learning_rate", "1e-4", "--max_steps=7", "--output_dir", "x", "--bf16"]
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "--training.optimizer.lr 0.0001" in shown
    assert "--training.steps 7" in shown
    assert "--training.precision bf16" in shown
    main(["finetune", "--fields", "--model_name_or_path", "m", "--train_file", "t.tsv", "--max_seq_length", "64"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--model m " in shown
    assert "--rows.train t.tsv" in shown
    assert "--rows.length 64" in shown
    main(["generate", "--fields", "--max-new-tokens", "9", "--num_return_sequences", "2"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--limits.max_length 9" in shown
    assert "--samples 2" in shown
    main(["train", "transformer-tiny", "--fields", "--max-length", "32", "--num-beams", "2"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--texts.longest 32" in shown
    assert "--search.beam_size 2" in shown


def test_an_unknown_option_is_answered_by_few_names(capsys):
    for arguments in (["pretrain", "bert-tiny", "--xyzzy", "1"], ["corpus", "build", "--xyzzy", "1", "--out", "out"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert capsys.readouterr().err.count(",") <= 5


def test_help_in_colour_has_the_same_words(monkeypatch):
    from unmask.cli.help import coloured

    verb = dict(verbs(parser()))["unmask finetune"]
    plain = verb.format_help()
    monkeypatch.setattr(sys.modules["unmask.cli.parser"], "formatter", lambda prog: coloured()(prog=prog))
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = verb.format_help()
    assert "\x1b[" in shown
    known = re.compile(r"(?m)^\w.*:$|--[\w-]+|default: \w+")
    assert known.findall(re.sub(r"\x1b\[[\d;]*m", "", shown)) == known.findall(plain)


def test_help_lists_what_is_required_first():
    for name, verb in verbs(parser()):
        shown = re.findall(r"(?m)^  (?:-\w, )?(--[\w.-]+)", verb.format_help())
        for group in verb._action_groups:
            own = [action for action in group._group_actions if action.option_strings]
            required = [action.option_strings[0] for action in own if action.required]
            listed = [option for option in shown if option in {action.option_strings[0] for action in own}]
            assert set(listed[: len(required)]) == set(required), (name, group.title)
    shown = {name: " ".join(verb.format_help().split()) for name, verb in verbs(parser())}
    for name, options in (
        ("unmask finetune", "--train FILE --model FOLDER --out FOLDER"),
        ("unmask baseline", "--train FILE"),
        ("unmask corpus build", "--out FOLDER"),
        ("unmask words convert", "--model FOLDER --out PLACE"),
        ("unmask generate", "--model FOLDER"),
    ):
        assert shown[name].startswith(f"usage: {name} {options} [")


def test_help_lists_every_option_of_the_commands_in_the_documents():
    """The options that a reader meets: in the help of the verb, or among the fields that it passes on."""
    from pathlib import Path

    known = dict(verbs(parser()))
    places = [Path(__file__).parents[1] / "README.md", *(Path(__file__).parents[1] / "docs").rglob("*.md")]
    found = 0
    for place in places:
        for line in re.findall(r"(?<![\w.`-])unmask ([a-z][^`\n#|]*)", place.read_text(encoding="utf-8")):
            words = line.split()
            name = next(
                (f"unmask {' '.join(words[:n])}" for n in (2, 1) if f"unmask {' '.join(words[:n])}" in known), None
            )
            if name is None or place.name in ("log.md", "benchmarks.md"):
                continue
            verb = known[name]
            for option in re.findall(r" (--[a-z][\w.-]*)", line):
                found += 1
                assert option in verb._option_string_actions or verb.takes_fields, (place.name, line, option)
    assert found > 100


def test_help_is_a_verb_too(capsys):
    for arguments, shown in (
        (["help"], "usage: unmask verb ..."),
        (["help", "corpus", "build"], "usage: unmask corpus build"),
        (["help", "finetune"], "--train FILE"),
        (["help", "words"], "nearest"),
    ):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        assert not exit.value.code
        assert shown in capsys.readouterr().out


def test_columns_have_the_names_that_fine_tuning_has_for_them(monkeypatch, capsys):
    asked = []

    def evaluate(model, data, rows, **_):
        asked.append((rows["text"], rows["label"]))
        return {}

    monkeypatch.setattr("unmask.runs.finetuning.evaluate", evaluate)
    for name in ("--text", "--rows.text"):
        main(["evaluate", "--model", "m", "--data", "d.tsv", "--json", name, "review", "--label", "stars"])
    assert asked == [("review", "stars")] * 2
    for given, said in (
        ([], "Give what to score"),
        (["--data", "d.tsv", "--text", "a", "b"], "one column of --data"),
        (["--pairs", "a.tsv", "--text", "a"], "--text is text to score"),
        (["--minimal-pairs", "a.jsonl", "--text", "a"], "--text is text to score"),
    ):
        with pytest.raises(SystemExit):
            main(["evaluate", "--model", "m", *given])
        assert said in capsys.readouterr().err


def test_text_is_read_from_arguments_a_file_or_standard_input(folder, monkeypatch):
    from unmask.cli import answering

    (folder / "lines.txt").write_bytes("first\r\n\n  \nzweites ÿ\n\n \n".encode())
    stdin = io.TextIOWrapper(io.BytesIO("einß\nzwei".encode()))
    monkeypatch.setattr("sys.stdin", stdin)

    def texts(*arguments: str) -> list[str]:
        return list(answering._texts(parser().parse_args(["predict", "--model", "x", *arguments])))

    assert texts("a", "b") == ["a", "b"]
    with pytest.raises(UnmaskError, match="Text 2 is empty"):
        texts("a", " ")
    assert texts("--file", "lines.txt") == ["first", "", "  ", "zweites ÿ"]  # the text of line n is number n
    (folder / "lines.tsv.gz").write_bytes(gzip.compress((folder / "lines.txt").read_bytes()))
    assert texts("--file", "lines.tsv.gz") == texts("--file", "lines.txt")
    assert texts() == ["einß", "zwei"]
    (folder / "marked.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n', encoding="utf-8-sig")  # as Windows writes it
    assert texts("--file", "marked.jsonl") == ['{"text": "a"}', '{"text": "b"}']
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(UnmaskError, match="no text in standard input: it is empty"):
        texts()
    (folder / "empty.txt").touch()
    with pytest.raises(UnmaskError, match=r"no text in empty\.txt: it is empty"):
        texts("--file", "empty.txt")
    (folder / "blank.txt").write_text(" \n\n")
    with pytest.raises(UnmaskError, match=r"no text in blank\.txt: its lines are blank"):
        texts("--file", "blank.txt")


def test_text_of_another_encoding_is_not_answered(folder, monkeypatch):
    from unmask.cli import answering

    def texts(*arguments: str) -> list[str]:
        return list(answering._texts(parser().parse_args(["predict", "--model", "x", *arguments])))

    latin = "first\nzweites \xff\n".encode("latin-1")
    (folder / "latin.txt").write_bytes(latin)
    with pytest.raises(UnmaskError, match=r"Line 2 of latin\.txt is not UTF-8 text \(the byte 0xFF\); save it"):
        texts("--file", "latin.txt")
    assert texts("--file", "latin.txt", "--encoding", "latin-1") == ["first", "zweites \xff"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(latin)))
    with pytest.raises(UnmaskError, match="Line 2 of standard input is not UTF-8 text"):
        texts()


def test_a_corpus_is_checked_as_json(capsys):
    main(["corpus", "check", "text.txt", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["documents"] == 2


def test_a_blank_file_beside_others_does_not_stop_a_corpus(folder, capsys):
    (folder / "blank.txt").write_text("\n\n")
    main(["corpus", "check", "blank.txt", "text.txt"])
    assert "  blank.txt: passed over, it holds no text" in capsys.readouterr().out
    main(["corpus", "build", "--data", "blank.txt", "text.txt", "--out", "beside", "--vocabulary-size", "40"])
    assert "  blank.txt: passed over, it holds no text" in capsys.readouterr().out


def test_a_corpus_of_unknown_tokens_says_what_to_do(folder, capsys):
    many = "  A model learns nothing from unknown tokens, and there are many: build the corpus with"
    build = ["corpus", "build", "--data", "text.txt", "--heldout", "0", "--out"]
    main([*build, "sound", "--vocabulary-size", "40"])
    assert many not in capsys.readouterr().out
    main([*build, "small", "--vocabulary-size", "10"])
    said = capsys.readouterr().out
    assert f"{many} a larger --vocabulary-size.\n" in said
    assert "Next: unmask pretrain" in said
    main([*build, "misfit", "--tokenizer", "small"])
    assert f"{many} another --tokenizer, or none.\n" in capsys.readouterr().out


def test_a_corpus_says_what_it_could_not_read(folder, monkeypatch, capsys):
    """Text in Latin-1 would lose its accents, and nobody should learn of that from the model."""
    texts = folder / "texts"
    texts.mkdir()
    (texts / "old.txt").write_bytes("le café est fermé\n\nle café est là\n".encode("latin-1"))
    (texts / "paper.pdf").write_bytes(b"%PDF-1.7 ...")
    (texts / "text.txt").write_text("One document.\n\nAnother document.\n")
    build = ["corpus", "build", "--data", "texts", "--vocabulary-size", "60", "--out"]
    main([*build, "out"])
    old, pdf = "  texts/old.txt: passed over, line 1 is not UTF-8 text", "  texts/paper.pdf: passed over, it is a PDF\n"
    out = capsys.readouterr().out
    assert old in out
    assert f"--encoding cp1252, which is likely\n{pdf}  Passed over: 2 files.\n" in out
    monkeypatch.setattr("unmask.cli.options.SHOWN", 1)
    main([*build, "again"])
    assert "  1 more such file" in capsys.readouterr().out
    main([*build, "whole", "--encoding", "latin-1"])
    assert f"{pdf}  Passed over: 1 file.\n" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["corpus", "check", "texts/old.txt"])
    assert "texts/old.txt:1 is not UTF-8 text (the byte 0xE9)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["corpus", "check", "other.txt", "--against", "texts"],
        ["pretrain", "word2vec", "--data", "texts", "--min-count", "1", "--dim", "4", "--out", "out"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_whatever_reads_folders_names_what_it_passed_over(arguments, folder, capsys):
    """Once, these two left a file of another encoding out without a word."""
    if "word2vec" in arguments:
        pytest.importorskip("numba")
    (folder / "other.txt").write_text("Something else.\n")
    (folder / "texts").mkdir()
    (folder / "texts" / "old.txt").write_bytes("le café est fermé\n".encode("latin-1"))
    (folder / "texts" / "text.txt").write_text("One document.\n\nAnother document.\n")
    main(arguments)
    out = " ".join(capsys.readouterr().out.split())
    assert "texts/old.txt: passed over, line 1 is not UTF-8 text" in out
    assert "Passed over: 1 file." in out


def test_short_documents_are_spoken_of(folder, capsys):
    (folder / "book.txt").write_text("\n\n".join(f"Line {i} of a dialogue." for i in range(60)))
    build = ["corpus", "build", "--data", "book.txt", "--out"]
    for said, arguments in (
        (True, ["corpus", "check", "book.txt"]),
        (False, ["corpus", "check", "book.txt", "--per", "line"]),
        (True, [*build, "out"]),
        (False, [*build, "lines", "--per", "line"]),
    ):
        main(arguments)
        assert ("if a file is one document, use --per file." in capsys.readouterr().out) is said


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (["--kind", "wordpiece"], "--kind"),
        (["--vocabulary-size", "8192"], "--vocabulary-size"),
        (["--vocabulary-size", "0"], "--vocabulary-size"),
        (["--cased"], "--cased"),
        (["--strip-accents"], "--strip-accents"),
    ],
)
def test_how_a_vocabulary_is_learned_means_nothing_where_one_is_given(option, named, folder, capsys):
    (folder / "corpora").mkdir(exist_ok=True)  # so that corpora/other is no name of the hub
    with pytest.raises(SystemExit):
        main(["corpus", "build", "--data", "text.txt", "--out", "out", "--tokenizer", "corpora/other", *option])
    sentence = f"unmask: {named} is for a new vocabulary, but corpora/other has one already: leave it out.\n"
    assert capsys.readouterr().err == sentence
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        ("wordpiece", "bert-mini --sentences none"),  # each document has one sentence
        ("bpe", "gpt2-mini"),
        ("word", "lstm-lm"),
        ("character", "lstm-lm"),
        ("spelled", "elmo-tiny"),
    ],
)
def test_what_follows_a_corpus_is_told_by_its_tokens(kind, recipe, folder, capsys):
    (folder / "text.txt").write_text("One document, one text.\n\nAnother document, another text.\n\nA third.\n")
    made = ["corpus", "build", "--data", "text.txt"]
    main([*made, "--out", "first", "--kind", kind, "--vocabulary-size", "300"])
    main([*made, "--out", "second", "--tokenizer", "first"])
    main([*made, "--out", "third", "--tokenizer", "second/tokenizer.json"])
    said = re.findall("Next: unmask pretrain (.*) --corpus", capsys.readouterr().out)
    assert said == [recipe] * 3


def test_the_value_of_a_field_is_never_taken_for_the_recipe(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "--out", str(tmp_path / "run"), "--resume", "--steps", "10"])
    assert "There is nothing to resume in" in capsys.readouterr().err
    main(["pretrain", "--steps", "10", "bert-tiny", "--lr=0.5", "--fields"])
    printed = capsys.readouterr().out.split()
    assert printed[printed.index("--training.steps") + 1] == "10"
    assert printed[printed.index("--training.optimizer.lr") + 1] == "0.5"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], "`make bench`"),
        (["pretrain", "--quick", "--size", "tiny"], "`make bench ARGS='pretrain --quick --size tiny'`"),
        (["--list", "decode"], "`make bench ARGS='--list decode'`"),
        (["embed", "--model", "owner/name", "-x"], "`make bench ARGS='embed --model owner/name -x'`"),
    ],
)
def test_bench_says_where_the_benchmarks_are(words, command, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["bench", *words])
    assert exit.value.code == 2
    assert command in capsys.readouterr().err


def test_the_package_shows_what_it_is_for():
    import unmask

    assert {"Predictor", "UnmaskError", "__version__", "load"} < set(dir(unmask)) == set(unmask.__all__)
    assert unmask.Predictor.__name__ == "Predictor"


def test_a_picture_names_the_extra_that_draws_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        main(["show", "positions", "--out", "x.png"])
    said = "unmask: Pictures need matplotlib: run pip install 'unmask[pictures]', or write FILE.html.\n"
    assert capsys.readouterr().err == said


def test_one_document_makes_a_corpus_that_can_be_learned_from(folder, capsys):
    """Its end is held out, and the next sentence, for which there must be two documents, is left out."""
    (folder / "book.txt").write_text("".join(f"This is line {i} of a book.\n" for i in range(60)))
    main(["corpus", "build", "--data", "book.txt", "--per", "file", "--out", "c", "--vocabulary-size", "60"])
    said = capsys.readouterr().out
    assert "  held out of the only document: its end, 1 sentence\n" in said
    assert "  All text is one document: if each line is a document, add --per line.\n" in said
    assert "Next: unmask pretrain bert-mini --sentences none --corpus c" in said
    smallest = ["--model.layers", "1", "--model.dim", "8", "--model.hidden", "8", "--model.heads", "2", "--batch", "2"]
    main(["pretrain", "bert-tiny", "--sentences", "none", "--corpus", "c", "--out", "r", "--steps", "1", *smallest])
    assert "Held-out masked tokens" in capsys.readouterr().out
    (folder / "line.txt").write_text("One sentence alone.\n")
    main(["corpus", "build", "--data", "line.txt", "--out", "one", "--vocabulary-size", "40"])
    assert "  No text is held out" in capsys.readouterr().out


def test_a_whole_book_that_is_held_out_is_said(folder, capsys):
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"This is line {i} of the book {name}.\n\n" for i in range(30)))
    build = ["corpus", "build", "--data", "one.txt", "two.txt", "--vocabulary-size", "60", "--heldout", "0.1", "--out"]
    main([*build, "whole", "--per", "file"])
    said = capsys.readouterr().out
    assert "  1 of 2 documents, with 50% of the text, held out in place of 10%" in said
    assert "--per blank-line makes each paragraph a document" in said
    main([*build, "parts"])
    said = capsys.readouterr().out
    assert "in place of 10%" not in said
    assert "pretrain bert-mini --sentences none --corpus parts" in said  # every paragraph is one sentence
    with pytest.raises(SystemExit):
        main(["pretrain", "bert-tiny", "--corpus", "other"])
    assert "There is no corpus other; there are parts, whole. Build one" in capsys.readouterr().err


def test_every_verb_that_reads_text_files_takes_their_encoding():
    found = [name for name, verb in verbs(parser()) if "--encoding" in verb._option_string_actions]
    takes = {name.removeprefix("unmask ") for name in found}
    assert takes == {
        *("corpus check", "corpus build", "corpus vocabulary", "vocabulary check", "vocabulary extend", "finetune"),
        *("baseline", "train"),
        "probe",
        *(
            "evaluate",
            "predict",
            "translate",
            "generate",
            "show units",
            "embed",
            "export",
            "words evaluate",
            "words walk",
        ),
    }

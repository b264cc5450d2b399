"""The pages on speech: their code and their commands run on small models and synthesised speech, and the options,
defaults, recipes and files in them exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pages
import pytest
import sounds
from command_line import run_cli

from unmask import huggingface
from unmask.data.recordings import synthetic
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.cpc import Cpc
from unmask.models.gpt import Gpt
from unmask.models.hubert import Hubert
from unmask.models.log_mel import LogMelEncoder
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.models.wavenet import WaveNet
from unmask.objectives.recordings import RecordingConfig
from unmask.runs import recipes, supervised_recipes
from unmask.runs.clustering import LabelMaking
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.probing import Probing
from unmask.tasks.recordings import RecordingTask
from unmask.tasks.registry import task_named

soundfile = pytest.importorskip("soundfile")
BLOCKS = {  # page -> the number of its blocks of Python, in an order in which the commands find their folders
    "recordings": 1,
    "wav2vec2": 1,
    "hubert": 1,
    "cpc": 1,
    "wavenet": 1,
    "speech": 2,
    "speech_tasks": 1,
    "speech_recognition": 1,
}
MODELS = {
    "wav2vec 2.0": Wav2Vec2,
    "HuBERT": Hubert,
    "log-mel": LogMelEncoder,
    "CPC": Cpc,
    "WaveNet": WaveNet,
    "cepstra": MfccCnn,
}
OBJECTIVES = {
    "quantised frames (wav2vec 2.0)": ("contrastive",),
    "clusters (HuBERT)": ("clusters",),
    "next frames (CPC)": ("next",),
    "next samples (WaveNet)": ("samples",),
}
TASKS = ("speech-classification", "verification", "speech-recognition")
RATE, WORDS = 8_000, synthetic.WORDS[:3]
EACH = pytest.mark.parametrize("page", BLOCKS)
TABLES = pages.tables_of(BLOCKS)


# ------------------------------------------------------------------------------------------------ code and commands


@EACH
def test_the_page_runs_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sounds.few(monkeypatch)
    pages.run_blocks(page, BLOCKS[page])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data that the pages name: three words by four voices, twice each, in all forms."""
    monkeypatch.chdir(tmp_path)
    sounds.few(monkeypatch)
    rng = np.random.default_rng(0)
    rows: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    phones: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for speaker in ("ann", "bob", "cid", "dee"):
        voice = synthetic.Voice.draw(rng)
        for take, text in enumerate([*WORDS, *WORDS]):
            samples, said = synthetic.spoken(text, voice, RATE, rng)
            for name in (f"recordings/{speaker}/{take}.wav", f"words/{text}/{speaker}_{take}.wav",
                         f"digits/{take % 3}_{speaker}_{take}.wav"):  # fmt: skip
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(name, samples, RATE, subtype="PCM_16")
            split = "dev" if speaker == "dee" else "test" if speaker == "cid" else "train"
            place = f"words/{text}/{speaker}_{take}.wav"
            rows[split].append(f"{place}\t{text}\t{text}\t{speaker}\n")
            phones[split] += [f"{place}\t{one.begin}\t{one.end}\t{one.letter}\n" for one in said]
    for split, lines in rows.items():
        Path(f"{split}.tsv").write_text("path\tlabel\ttext\tspeaker\n" + "".join(lines))
    for split, lines in phones.items():
        Path(f"phones-{split}.tsv").write_text("path\tbegin\tend\tlabel\n" + "".join(lines))
    every = [line.split("\t") for lines in rows.values() for line in lines]
    Path("speakers.tsv").write_text("path\tspeaker\n" + "".join(f"{name}\t{speaker}" for name, *_, speaker in every))
    shutil.copytree("words", "labelled")
    shutil.copy(every[0][0], "talk.wav")
    Path("pairs.txt").write_text("talk.wav\ttalk.wav\ntalk.wav\tdigits/0_bob_0.wav\n")
    Path("texts.txt").write_text("".join(f"{word}\n" for word in WORDS))
    tokenizer = Tokenizer.train([*WORDS] * 5, 60)
    gpt = Gpt(vocabulary=tokenizer.size, length=16, dim=8, layers=1, heads=2)
    huggingface.save("runs/gpt", gpt.build(), tokenizer)
    return tmp_path


SMALL = "--steps 2 --batch-size 2 --heldout 4 --device cpu --precision fp32"
TRUNK = "--model.dim 16 --model.heads 2 --model.layers 2 --model.hidden 16 --position-kernel 4 --position-groups 2"
MODEL = {"cpc-tiny": "--model.channels 8,8,8,8 --model.dim 16", "wavenet-tiny": "--dim 8 --skip 8 --dilations 1,2"}
FEW = "--epochs 0.2 --least-steps 1 --seeds 1 --evaluations 1 --device cpu --precision fp32"


def shortened(words: list[str]) -> list[str] | None:
    """The arguments of a command of a page, for one or two steps of a small model; None for one that needs a GPU, or
    that does not end."""
    verb, *rest = words
    if verb in ("serve", "pip") or {"wav2vec2-base", "hubert-base", "xls-r"} & set(rest):
        return None
    if "--minutes" in rest:
        at = rest.index("--minutes")
        rest = rest[:at] + rest[at + 2 :]
    if verb == "pretrain" or "--iterations" in rest:
        new = "--from" not in rest
        model = MODEL.get(rest[0], f"--model.channels 8,8,8,8,8,8 {TRUNK}")
        few = [*SMALL.split(), *(model.split() if new else ())]
        return [verb, *_with(rest, "--clusters", "5,4" if "--iterations" in rest else None), *few]
    if verb == "generate":
        return [verb, *_with(rest, "--seconds", "0.05")]
    if verb == "cluster":
        return [verb, *_with(rest, "--clusters", "5")]
    if verb == "corpus" and "--workers" in rest:
        return [verb, *_with(rest, "--workers", "1")]
    if verb in ("finetune", "train"):
        return [verb, *rest, *FEW.split(), "--batch-size", "4"]
    return [verb, *rest]


def _with(words: list[str], option: str, value: str | None) -> list[str]:
    """The arguments with another value of an option, or with the option, unless the value is None."""
    if option in words:
        at = words.index(option)
        words = words[:at] + words[at + 2 :]
    return words if value is None else [*words, option, value]


def test_the_commands_of_the_pages_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two", "other"):
        status, *_ = run_cli(capsys, "corpus", "build", "recordings", "--rate", str(RATE), "--out", f"corpora/{name}")
        assert status == 0
    done, failed = set(), []
    for page in BLOCKS:
        for command in pages.commands(page):
            words = shortened(pages.words_of(command))
            pages.check_command(command, "hubert-tiny")
            if words is None or " ".join(words) in done:
                continue
            done.add(" ".join(words))
            if "--out" in words and (out := Path(words[words.index("--out") + 1])).is_dir():
                shutil.rmtree(out)
            status, _, error = run_cli(capsys, *words)
            if status != 0 or ("--out" in words and not out.exists()):
                failed.append(f"docs/{page}.md: {command}: {error}")
    assert not failed, "\n".join(failed)


# ------------------------------------------------------------------------------------------------ what the pages name


def of_recordings() -> tuple[set[str], set[str]]:
    """The recipes of `pretrain` and of `train` that learn from recordings."""
    learn = {name for name in recipes.names() if isinstance(recipes.find(name).objective, RecordingConfig)}
    tasks = {name: task_named(pages.config_named(name).task) for name in supervised_recipes.names()}
    return learn, {name for name, task in tasks.items() if issubclass(task, RecordingTask)}


def test_every_option_that_the_pages_name_exists() -> None:
    runs = [pages.config_named(name) for names in of_recordings() for name in sorted(names)]
    tasks = [FineTuning().override({"task": task}) for task in TASKS]
    for page, unknown in pages.options_of(BLOCKS, (*runs, *tasks, Probing(), LabelMaking())):
        assert not unknown, f"docs/{page}.md names {sorted(unknown)}"


@pytest.mark.parametrize(("page", "name", "rows"), TABLES, ids=[f"{page}-{name}" for page, name, _ in TABLES])
def test_the_defaults_are_those_of_the_recipe(page: str, name: str, rows: str) -> None:
    pages.check_defaults(page, name, rows)


def test_every_page_on_a_model_has_tables_of_options() -> None:
    assert {page for page, *_ in TABLES} == set(BLOCKS) - {"recordings"}


def test_the_table_of_recipes_is_complete() -> None:
    learn, supervised = of_recordings()
    told = pages.recipes_told("speech")
    assert told == dict.fromkeys(learn, "pretrain") | dict.fromkeys(supervised, "train")
    named = {name for page in BLOCKS for name in re.findall(r"`([a-z0-9-]+-(?:tiny|base))`", pages.text_of(page))}
    assert named <= told.keys()


def test_what_models_learn_is_as_the_table_says() -> None:
    pages.check_learns("speech", {name: model() for name, model in MODELS.items()}, OBJECTIVES, "frames")


@pytest.mark.parametrize("page", [page for page in BLOCKS if page != "recordings"])
def test_the_files_of_the_equations_exist(page: str) -> None:
    pages.check_files(page)


def test_links_to_headings_lead_somewhere() -> None:
    pages.check_links(BLOCKS)

"""word2vec trains: what it learns, that it repeats, what is left when it stops; its verbs."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

from unmask.cli import main
from unmask.errors import Stopped, UnmaskError
from unmask.runs.word_vectors import Word2Vec, Words, WordVectors, random_walks, read, reading, train, training
from unmask.runs.word_vectors.sampling import keep_probabilities

pytest.importorskip("numba", reason="training needs numba")

SMALL = Word2Vec(dim=16, window=3, epochs=8, alpha=0.05, words=Words(min_count=1, subsample=0))


def topics(sentences: int = 400, seed: int = 0) -> list[list[str]]:
    """Sentences of two topics of eight words each."""
    rng = np.random.default_rng(seed)
    names = [[f"{topic}{i}" for i in range(8)] for topic in "ab"]
    return [rng.choice(names[rng.integers(2)], 8).tolist() for _ in range(sentences)]


class Display:
    """Notes what it is shown, and calls `at` at every row."""

    def __init__(self, at=lambda: None):
        self.rows, self.notes, self.at, self.closed = [], [], at, False

    def start(self, step, total):
        self.total = total

    def show(self, row):
        self.rows.append(row)
        self.at()

    def note(self, text):
        self.notes.append(text)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
@pytest.mark.parametrize("output", ["negative", "hierarchical", "softmax"])
@pytest.mark.parametrize("threads", [1, 3])
def test_words_of_a_topic_come_together(network, output, threads, monkeypatch):
    monkeypatch.setattr(training, "JOB", 200)
    vectors = train(topics(), SMALL.replace(network=network, output=output), threads=threads).vectors
    cosines = vectors.unit() @ vectors.unit().T
    topic = np.array([word[0] for word in vectors.words])
    same = (topic[:, None] == topic) & ~np.eye(16, dtype=bool)
    assert cosines[same].mean() > cosines[topic[:, None] != topic].mean() + 0.3
    assert vectors.odd_one_out(["a1", "a2", "b3", "a4"]) == "b3"


def test_one_thread_repeats_itself():
    config = SMALL.replace(epochs=2, words={"subsample": 0.1})
    first, again = (train(topics(), config, threads=1) for _ in range(2))
    assert (first.vectors.matrix == again.vectors.matrix).all()
    assert (first.outputs == again.outputs).all()
    assert first.vectors.words == again.vectors.words
    assert (train(topics(), config.replace(seed=1), threads=1).vectors.matrix != first.vectors.matrix).any()


def test_the_seed_decides_on_what_is_drawn_too(monkeypatch):
    same = np.full((16, 16), 0.01, np.float32)
    monkeypatch.setattr(training, "_initial", lambda words, rows, config: (same.copy(), same.copy()))
    first, other = (train(topics(), SMALL.replace(epochs=1, seed=seed), threads=1) for seed in (0, 1))
    assert (first.vectors.matrix != other.vectors.matrix).any()


def test_each_epoch_reads_all_of_the_text_in_an_order_of_its_own(monkeypatch):
    """Sentence i is of the word i alone, and every job is one sentence."""
    monkeypatch.setattr(training, "JOB", 8)
    real, seen = training.compiled, []

    def watched(network):
        run = real(network)
        return lambda job, *rest: (seen.extend(np.unique(job.words_N).tolist()), run(job, *rest))[1]

    monkeypatch.setattr(training, "compiled", watched)
    train([[f"w{i:02}"] * 8 for i in range(40)], SMALL.replace(epochs=3), threads=1)
    epochs = np.array(seen).reshape(3, 40)
    assert (np.sort(epochs) == np.arange(40)).all()
    assert len({tuple(order) for order in epochs.tolist()}) == 3


def test_frequent_words_are_skipped():
    found = train(topics(), SMALL.replace(words={"subsample": 0.01}), threads=1)
    expected = (keep_probabilities(found.vectors.counts, 0.01) * found.vectors.counts).sum() * SMALL.epochs
    assert found.facts["words_trained"] == pytest.approx(expected, rel=0.02)
    assert train(topics(50), SMALL, threads=1).facts["words_trained"] == 50 * 8 * SMALL.epochs


def test_no_pass_is_the_beginning():
    """Before anything is learned inputs are within 1 / 2D; a rate of next to nothing leaves them there."""
    found = train(topics(50), SMALL.replace(alpha=1e-12, min_alpha=0.0, epochs=1), threads=1)
    assert 0.45 / 16 < np.abs(found.vectors.matrix).max() <= 0.5 / 16
    assert np.abs(found.outputs).max() < 1e-9


def test_ids_phrases_and_walks_are_words_too():
    assert set(train([[1, 2, 3]] * 20, SMALL, threads=1).vectors.words) == {"1", "2", "3"}
    joined = train(
        topics() + [["new", "york"]] * 300, SMALL.replace(words={"phrases": 1, "phrase_threshold": 5.0}), threads=1
    ).vectors
    assert "new_york" in joined
    assert joined.counts[joined.index["new_york"]] == 300
    ring = [(f"n{i}", f"n{(i + 1) % 12}") for i in range(12)]
    walks = random_walks(ring, np.random.default_rng(0), walks=40, length=12)
    around = train(walks, SMALL.replace(epochs=15), threads=1).vectors
    assert around.similarity("n0", "n1") > around.similarity("n0", "n6")


def test_the_rate_falls_and_every_word_counts(monkeypatch):
    monkeypatch.setattr(training, "JOB", 100)
    display = Display()
    monkeypatch.setattr(training._Progress, "done", eager(training._Progress.done))
    found = train(topics(100), SMALL.replace(epochs=3), threads=1, display=display)
    assert display.total == 3 * len(display.rows) / 3 == 27
    rates = [row["lr"] for row in display.rows]
    assert rates[0] == SMALL.alpha
    np.testing.assert_allclose(np.diff(rates), -(SMALL.alpha - SMALL.min_alpha) / 27)
    assert found.facts["words_read"] == 3 * 800
    assert found.facts["share_done"] == 1
    assert display.closed
    assert "800 words read" in display.notes[0]


def eager(done):
    def show_all(self, alpha, left):
        self.shown = 0.0
        done(self, alpha, left)

    return show_all


def test_jobs_end_with_sentences_where_they_can(monkeypatch):
    monkeypatch.setattr(training, "JOB", 10)
    assert training._cuts(np.array([4, 9, 12, 35, 36]), 36).tolist() == [0, 9, 12, 22, 32, 36]
    assert training._cuts(np.array([10, 20]), 20).tolist() == [0, 10, 20]
    assert training._cuts(np.array([0, 3]), 3).tolist() == [0, 3]


# ------------------------------------------------------------------------------------------------ folders


def test_a_folder_holds_the_run(tmp_path):
    found = train(topics(50), SMALL, out=tmp_path / "run", threads=1)
    again = read(tmp_path / "run")
    assert (again.matrix == found.vectors.matrix).all()
    assert (again.counts == found.vectors.counts).all()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert Word2Vec.from_dict(run["config"]) == SMALL
    assert run["facts"]["different_words"] == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    with pytest.raises(UnmaskError, match="exists already"):
        train(topics(50), SMALL, out=tmp_path / "run")


# ------------------------------------------------------------------------------------------------ to be cut short


class Killed(BaseException):
    """Stands for a process that ends without a word."""


def killed_at(row: int):
    """A display that kills the run at a row."""

    def at() -> None:
        if len(display.rows) == row:
            raise Killed

    display = Display(at)
    return display


@pytest.fixture
def often(monkeypatch):
    """Many jobs, each of which is shown, and a checkpoint every few of them."""
    monkeypatch.setattr(training, "JOB", 100)
    monkeypatch.setattr(training._Progress, "done", eager(training._Progress.done))
    return SMALL.replace(epochs=4, save_minutes=1e-7, words={"subsample": 0.1})


@pytest.mark.parametrize("network", ["skip-gram", "cbow"])
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_been(tmp_path, often, network):
    config = often.replace(network=network)
    whole = train(topics(100), config, threads=1)
    with pytest.raises(Killed):
        train(topics(100), config, out=tmp_path / "run", threads=1, display=killed_at(20))
    with pytest.raises(UnmaskError, match="holds no word vectors yet; continue with: unmask pretrain --out"):
        read(tmp_path / "run")
    display = Display()
    found = train(out=tmp_path / "run", threads=1, display=display, resume=True)
    assert display.rows[0]["step"] > 10
    assert (found.vectors.matrix == whole.vectors.matrix).all()
    assert (found.outputs == whole.outputs).all()
    assert {**found.facts, "seconds": 0, "words_per_second": 0} == {**whole.facts, "seconds": 0, "words_per_second": 0}
    assert (read(tmp_path / "run").matrix == whole.vectors.matrix).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "README.md",
        "run.json",
        "vectors.safetensors",
        "words.json",
    ]
    with pytest.raises(UnmaskError, match="has ended; there is nothing to continue"):
        train(out=tmp_path / "run", resume=True)


def test_a_run_that_was_stopped_goes_on_too(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "JOB", 200)
    config = SMALL.replace(epochs=30)
    whole = train(topics(), config, threads=1)
    display = Display(lambda: os.kill(os.getpid(), signal.SIGTERM))
    first = train(topics(), config, out=tmp_path / "run", threads=1, display=display)
    assert first.facts["stopped"] == "SIGTERM"
    assert display.notes[-1] == f"Continue with: unmask pretrain --out {tmp_path / 'run'} --resume"
    with pytest.raises(UnmaskError, match="holds an interrupted run; continue it with --resume"):
        train(topics(), config, out=tmp_path / "run", threads=1)
    found = train(topics(5), config, out=tmp_path / "run", threads=1, resume=True)
    assert found.facts["stopped"] is None
    assert (found.vectors.matrix == whole.vectors.matrix).all()


def test_a_run_that_was_killed_while_it_tidied_has_ended(tmp_path, often, monkeypatch):
    def half(out):
        (out / "checkpoint" / "state.safetensors").unlink()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(training.checkpoint, "remove", half)
        with pytest.raises(Killed):
            train(topics(100), often, out=tmp_path / "run", threads=1)
    assert (read(tmp_path / "run").matrix == train(topics(100), often, threads=1).vectors.matrix).all()
    with pytest.raises(UnmaskError, match="has ended; there is nothing to continue"):
        train(out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_signal_after_the_last_job_stops_nothing(tmp_path):
    display = Display(lambda: display.rows[-1]["step"] == display.total and os.kill(os.getpid(), signal.SIGTERM))
    found = train(topics(50), SMALL, out=tmp_path / "run", threads=1, display=display)
    assert (found.facts["share_done"], found.facts["stopped"]) == (1, None)
    assert not any("Continue with" in note for note in display.notes)


def test_several_threads_lose_no_job(tmp_path, often):
    with pytest.raises(Killed):
        train(topics(100), often, out=tmp_path / "run", threads=3, display=killed_at(15))
    found = train(topics(100), often, out=tmp_path / "run", threads=2, resume=True)
    assert found.facts["share_done"] == 1
    assert found.facts["words_trained"] == train(topics(100), often, threads=1).facts["words_trained"]


def test_a_link_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UnmaskError, match="link is a link or a mount"):
        train(topics(50), SMALL, out=tmp_path / "link", threads=1)


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(UnmaskError, match=r"There is nothing to resume in .*run; omit --resume"):
        train(topics(50), SMALL, out=tmp_path / "run", threads=1, resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_died_before_its_first_checkpoint_begins_with_its_own_settings(tmp_path, capsys):
    """Settings, text and threads are those that were asked for first; the vectors those of a run that never died."""
    (tmp_path / "text.txt").write_text("\n".join(" ".join(s) for s in topics(50)))
    asked = SMALL.replace(epochs=3, reading={"tokens": "spaces"})
    given = {"files": [tmp_path / "text.txt"], "threads": 1}
    whole = train(None, asked, **given)
    with pytest.raises(Killed):
        train(None, asked, out=tmp_path / "run", display=killed_at(1), **given)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    with pytest.raises(SystemExit):
        main(["pretrain", "word2vec", "--out", str(tmp_path / "run"), "--resume", "--epochs", "4"])
    assert "continues with its own settings" in capsys.readouterr().err
    main(["pretrain", "word2vec", "--out", str(tmp_path / "run"), "--resume"])
    said = " ".join(capsys.readouterr().out.split())
    assert "has no checkpoint yet: the run begins from the start, with its settings" in said
    assert "continues with 1 thread; --threads sets another number" in said
    assert (read(tmp_path / "run").matrix == whole.vectors.matrix).all()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (run["config"]["epochs"], run["threads"], run["files"]) == (3, 1, [str(tmp_path / "text.txt")])


def test_text_from_no_file_is_given_again(tmp_path):
    with pytest.raises(Killed):
        train(topics(50), SMALL, out=tmp_path / "run", threads=1, display=killed_at(1))
    with pytest.raises(UnmaskError, match="which came from no file: give it again"):
        train(out=tmp_path / "run", resume=True)
    again = train(topics(50), out=tmp_path / "run", resume=True)
    assert (again.vectors.matrix == train(topics(50), SMALL, threads=1).vectors.matrix).all()


def test_what_was_killed_before_its_first_checkpoint_may_also_begin_anew(tmp_path):
    with pytest.raises(Killed):
        train(topics(50), SMALL, out=tmp_path / "run", threads=1, display=killed_at(1))
    assert train(topics(50), SMALL.replace(dim=8), out=tmp_path / "run", threads=1).vectors.dim == 8


def test_a_run_goes_on_with_its_own_threads(tmp_path, often):
    whole = train(topics(100), often, threads=1)
    with pytest.raises(Killed):
        train(topics(100), often, out=tmp_path / "run", threads=1, display=killed_at(20))
    display = Display()
    found = train(out=tmp_path / "run", display=display, resume=True)
    assert found.facts["threads"] == 1
    assert "The run continues with 1 thread; --threads sets another number." in display.notes
    assert (found.vectors.matrix == whole.vectors.matrix).all()


@pytest.mark.parametrize("name", ["state.safetensors", "ids.int32", "ends.int64", "words.json"])
def test_a_checkpoint_that_is_damaged_is_named(tmp_path, often, name):
    with pytest.raises(Killed):
        train(topics(100), often, out=tmp_path / "run", threads=1, display=killed_at(20))
    file = tmp_path / "run" / "checkpoint" / name
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(UnmaskError, match=r"start again|not valid JSON"):
        train(out=tmp_path / "run", resume=True)


def test_a_run_goes_on_with_its_own_settings(tmp_path, often):
    with pytest.raises(Killed):
        train(topics(100), often, out=tmp_path / "run", threads=1, display=killed_at(20))
    with pytest.raises(UnmaskError, match="continues with its own settings"):
        train(topics(100), often.replace(dim=8), out=tmp_path / "run", resume=True)


def test_the_command_goes_on(tmp_path, often, capsys):
    with pytest.raises(Killed):
        train(topics(100), often, out=tmp_path / "run", threads=1, display=killed_at(20))
    with pytest.raises(SystemExit):
        main(["pretrain", "word2vec-cbow", "--out", str(tmp_path / "run"), "--resume"])
    assert "continues with its own settings" in capsys.readouterr().err
    main(["pretrain", "--out", str(tmp_path / "run"), "--resume", "--threads", "1"])
    assert (read(tmp_path / "run").matrix == train(topics(100), often, threads=1).vectors.matrix).all()


@pytest.mark.slow
def test_a_recipe_alone_learns_from_the_installed_documentation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole = reading.embedded.documents
    monkeypatch.setattr(reading.embedded, "documents", lambda: whole(packages=["networkx"]))
    main(["pretrain", "word2vec", "--dim", "8", "--epochs", "1", "--threads", "1"])
    assert "unmask words nearest --model runs/word2vec" in capsys.readouterr().out
    assert "the" in read(tmp_path / "runs" / "word2vec").words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_learned_is_kept_when_it_stops(tmp_path, monkeypatch, number):
    monkeypatch.setattr(training, "JOB", 200)
    display = Display(lambda: os.kill(os.getpid(), number))
    found = train(topics(), SMALL.replace(epochs=100), out=tmp_path / "run", threads=1, display=display)
    assert found.facts["stopped"] == number.name
    assert 0 < found.facts["share_done"] < 0.5
    assert "the vectors so far are kept" in display.notes[-3]
    assert len(WordVectors.load(tmp_path / "run")) == 16


def test_nothing_is_left_of_a_run_that_failed(tmp_path):
    def broken():
        yield from topics(5)
        raise OSError("the disk is gone")

    def stopped():
        yield from topics(5)
        os.kill(os.getpid(), signal.SIGTERM)
        yield from topics(5)

    with pytest.raises(OSError, match="gone"):
        train(broken(), SMALL, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Stopped, match="Stopped by SIGTERM while the text was read; nothing was saved"):
        train(stopped(), SMALL)
    with pytest.raises(Stopped, match="continue with: unmask pretrain --out"):
        train(stopped(), SMALL, out=tmp_path / "run")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["run", "run.json"]


def test_rates_that_break_everything_are_named():
    with pytest.raises(UnmaskError, match="diverged: set --alpha lower"):
        train(topics(), SMALL.replace(alpha=1e30), threads=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 0},
        {"window": 0},
        {"epochs": 0},
        {"negative": 0},
        {"alpha": 0.0},
        {"min_alpha": 1.0},
        {"seed": -1},
        {"words": {"min_count": 0}},
        {"words": {"subsample": -1.0}},
        {"words": {"phrases": -1}},
        {"words": {"most": -1}},
        {"words": {"limit": 0}},
    ],
)
def test_settings_that_make_no_sense_are_named(changes):
    with pytest.raises(UnmaskError, match="must"):
        train(topics(5), SMALL.replace(**changes))


def test_threads_must_be_some():
    with pytest.raises(UnmaskError, match="threads must be at least 1"):
        train(topics(5), SMALL, threads=0)


# ------------------------------------------------------------------------------------------------ verbs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    room = tmp_path_factory.mktemp("verbs")
    (room / "text.txt").write_text("\n".join(" ".join(s) for s in topics()))
    numbers = ["--dim", "16", "--min-count", "1", "--epochs", "3", "--threads", "1", "--subsample", "0"]
    main(
        [
            "pretrain",
            "word2vec",
            "--data",
            str(room / "text.txt"),
            "--tokens",
            "spaces",
            "--out",
            str(room / "run"),
            *numbers,
        ]
    )
    return room / "run"


def said(capsys, *arguments: str) -> str:
    capsys.readouterr()
    main(list(arguments))
    return capsys.readouterr().out


def test_verbs_answer(folder, capsys, tmp_path):
    model = ["--model", str(folder)]
    nearest = json.loads(said(capsys, "words", "nearest", *model, "a1", "a2", "--minus", "b1", "--top", "3", "--json"))
    assert len(nearest) == 3
    assert nearest[0]["word"][0] == "a"
    assert len(said(capsys, "words", "nearest", *model, "a1").splitlines()) == 10
    assert json.loads(said(capsys, "words", "odd", *model, "a1", "a2", "b1", "--json")) == {"odd": "b1"}
    assert -1 <= float(said(capsys, "words", "similarity", *model, "a1", "a2")) <= 1
    assert len(said(capsys, "words", "analogy", *model, "a1", "a2", "b1", "--top", "2").splitlines()) == 2
    (tmp_path / "q.txt").write_text(": one\na1 a2 a3 a4\n")
    (tmp_path / "p.txt").write_text("a1 a2 9\na1 b1 1\n")
    asked = ["--analogies", str(tmp_path / "q.txt"), "--pairs", str(tmp_path / "p.txt")]
    found = json.loads(said(capsys, "words", "evaluate", *model, *asked, "--json"))
    assert found["pairs"][str(tmp_path / "p.txt")]["spearman"] == pytest.approx(1)
    assert found["analogies"][str(tmp_path / "q.txt")][-1]["asked"] == 1
    assert "Spearman 1.000" in said(capsys, "words", "evaluate", *model, *asked)


@pytest.mark.parametrize("name", ["a.bin", "a.vec", "folder"])
def test_verbs_convert(folder, capsys, tmp_path, name):
    assert name in said(capsys, "words", "convert", "--model", str(folder), "--out", str(tmp_path / name))
    assert (read(tmp_path / name).matrix == read(folder).matrix).all()


def test_vectors_are_not_converted_to_what_they_are_not(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["words", "convert", "--model", str(folder), "--out", str(tmp_path / "a.csv")])
    assert "--out must be a .bin, .txt or .vec file, or a folder, not a.csv" in capsys.readouterr().err
    assert not (tmp_path / "a.csv").exists()


def test_vectors_are_not_converted_into_a_folder_that_holds_others(folder, tmp_path, capsys):
    (tmp_path / "v.txt").write_text("word 1 2 3\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SystemExit):
        main(["words", "convert", "--model", str(tmp_path / "v.txt"), "--out", str(folder)])
    assert "holds something already; choose another folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_walks_are_written(capsys, tmp_path):
    (tmp_path / "edges.txt").write_text("a b\nb c\n")
    arguments = ["--edges", str(tmp_path / "edges.txt"), "--out", str(tmp_path / "walks.txt"), "--walks", "2"]
    assert "6 walks" in said(capsys, "words", "walk", *arguments)
    assert all(len(line.split()) == 40 for line in (tmp_path / "walks.txt").read_text().splitlines())


def test_recipes_and_fields_are_listed(capsys):
    assert "word2vec-cbow" in said(capsys, "recipes")
    assert "skip-gram" in said(capsys, "pretrain", "word2vec", "--fields")
    assert "cbow" in said(capsys, "pretrain", "word2vec-cbow", "--fields")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pretrain", "word2vec", "--out", "x", "--dry-run"], "--dry-run has no effect for word2vec"),
        (["pretrain", "word2vec", "--out", "x", "--windw", "3"], "did you mean 'window'"),
        (["pretrain", "word2vec", "--out", "x", "--threads", "many"], "--threads must be a whole number"),
        (["pretrain", "bert-tiny", "--out", "x", "--data", "y"], "There is no file or folder y."),
        (["words", "nearest", "--model", "nowhere", "a"], "no file or folder nowhere"),
        (["words", "evaluate", "--model", "nowhere"], "Give --analogies FILE"),
        (["words", "nearst"], "nearest"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

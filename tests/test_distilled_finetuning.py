"""Fine-tuning with a teacher, from the settings to the folder."""

from __future__ import annotations

import numpy as np
import pytest

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.finetuning import FineTuning, evaluate, finetune

WORDS = ["the", "film", "was", "good", "bad", "long", "short", "fine", "poor", "great"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([" ".join(WORDS)] * 20, 60)


def trunk(folder, tokenizer, dim):
    config = Bert(vocabulary=tokenizer.size, dim=dim, layers=1, heads=2, hidden=2 * dim, length=32, std=0.1)
    huggingface.save(folder, config.build(as_heads({"mlm": 0}), seed=0), tokenizer)
    return folder


def table(path, count, seed):
    rng = np.random.default_rng(seed)
    lines = ["text\tlabel"]
    for _ in range(count):
        words = rng.choice([word for word in WORDS if word not in ("good", "bad")], 6).tolist()
        label = ("bad", "good")[rng.integers(2)]
        words.insert(int(rng.integers(6)), label)
        lines.append(f"{' '.join(words)}\t{label}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(model, folder, **more):
    base = {"model": model, "train": folder / "train.tsv", "dev": folder / "dev.tsv", "lr": 5e-3, "epochs": 10}
    base |= {"batch_size": 16, "least_steps": 1, "seeds": 1, "precision": "fp32", "device": "cpu"}
    return FineTuning().override({**base, "allow_overlap": "yes", **more})


@pytest.mark.slow
def test_a_student_learns_from_a_wider_teacher_and_its_folder_is_plain(tokenizer, tmp_path):
    table(tmp_path / "train.tsv", 160, 0)
    table(tmp_path / "dev.tsv", 60, 1)
    large, small = trunk(tmp_path / "large", tokenizer, 32), trunk(tmp_path / "small", tokenizer, 16)
    teacher = finetune(settings(large, tmp_path), tmp_path / "teacher")
    assert teacher.summary["dev"]["accuracy"]["mean"] > 0.9
    more = {"teacher": tmp_path / "teacher", "distillation.weight": 1.0, "distillation.hidden": 0.5}
    student = finetune(settings(small, tmp_path, **more), tmp_path / "student")
    assert student.summary["dev"]["accuracy"]["mean"] > 0.9  # it never saw a label: the teacher's answers alone
    assert list(huggingface.load(tmp_path / "student").model.heads) == ["classification"]
    again = evaluate(tmp_path / "student", tmp_path / "dev.tsv")["metrics"]["accuracy"]
    assert again == pytest.approx(student.seeds[0]["dev"]["accuracy"])

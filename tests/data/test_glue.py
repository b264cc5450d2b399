"""GLUE, SNLI and TREC in their original formats, a few rows of each written as the distributions write them."""

from __future__ import annotations

import gzip
import json

import pytest

from unmask import metrics
from unmask.data.labelled import glue
from unmask.errors import UnmaskError


def tsv(*rows):
    return "".join("\t".join(row.split("|")) + "\n" for row in rows)


MNLI = (
    "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse"
    "|sentence1|sentence2"
)
STS = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
NLI_ROW = "( a )|( b )|(ROOT a)|(ROOT b)"
SNLI = "gold_label|sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse|sentence1|sentence2"

# benchmark, part, file, content -> (id, text, pair, label) of each row
ORIGINAL = {
    "CoLA train": (
        *(
            "CoLA",
            "train",
            "CoLA/train.tsv",
            tsv("gj04|1||Our friends \"won't buy it.", "gj04|0|*|They drank the pub."),
        ),
        [("", "Our friends \"won't buy it.", None, "1"), ("", "They drank the pub.", None, "0")],
    ),
    "CoLA test": (
        *("CoLA", "test", "CoLA/test.tsv", tsv("index|sentence", "0|Bill ate.", "1|Bill eat.")),
        [("0", "Bill ate.", None, ""), ("1", "Bill eat.", None, "")],
    ),
    "SST-2 dev": (
        *("SST-2", "dev", "SST-2/dev.tsv", tsv("sentence|label", "it 's a charming journey . |1")),
        [("", "it 's a charming journey . ", None, "1")],
    ),
    "SST-2 test": (
        *("SST-2", "test", "SST-2/test.tsv", tsv("index|sentence", "0|uneasy mishmash .")),
        [("0", "uneasy mishmash .", None, "")],
    ),
    "MRPC train": (
        *("MRPC", "train", "MRPC/train.tsv"),
        "\ufeff" + tsv("Quality|#1 ID|#2 ID|#1 String|#2 String", '1|702876|702977|He called "him".|"Amrozi did.'),
        [("", 'He called "him".', '"Amrozi did.', "1")],
    ),
    "MRPC test": (
        *(
            "MRPC",
            "test",
            "MRPC/test.tsv",
            tsv("index|#1 ID|#2 ID|#1 String|#2 String", "0|1089874|1089925|PCCW's|Current"),
        ),
        [("0", "PCCW's", "Current", "")],
    ),
    "STS-B train": (
        *("STS-B", "train", "STS-B/train.tsv"),
        tsv(STS + "|score", "0|main-captions|MSRvid|2012test|0001|none|none|A plane.|An air plane.|5.000"),
        [("0", "A plane.", "An air plane.", "5.000")],
    ),
    "STS-B test": (
        *("STS-B", "test", "STS-B/test.tsv"),
        tsv(STS, "0|main-captions|MSRvid|2012test|0024|none|none|A girl.|A girl too."),
        [("0", "A girl.", "A girl too.", "")],
    ),
    "QQP dev": (
        *("QQP", "dev", "QQP/dev.tsv"),
        tsv("id|qid1|qid2|question1|question2|is_duplicate", "201359|303345|303346|Why hate?|Why love?|0"),
        [("201359", "Why hate?", "Why love?", "0")],
    ),
    "QQP test": (
        *("QQP", "test", "QQP/test.tsv", tsv("id|question1|question2", "0|Would AI?|Would it?")),
        [("0", "Would AI?", "Would it?", "")],
    ),
    "MNLI train": (
        *("MNLI", "train", "MNLI/train.tsv"),
        tsv(MNLI + "|label1|gold_label", f"0|31193|31193n|government|{NLI_ROW}|Product.|Geography.|neutral|neutral"),
        [("0", "Product.", "Geography.", "neutral")],
    ),
    "MNLI dev": (
        *("mnli-m", "dev", "MNLI/dev_matched.tsv"),
        tsv(
            MNLI + "|label1|label2|label3|label4|label5|gold_label",
            f"0|6|6n|slate|{NLI_ROW}|New rights.|Benefits.|" + "|".join(["entailment"] * 2 + ["neutral"] * 4),
        ),
        [("0", "New rights.", "Benefits.", "neutral")],
    ),
    "MNLI mismatched test": (
        *("mnli-mm", "test", "MNLI/test_mismatched.tsv", tsv(MNLI, f"0|6|6n|verbatim|{NLI_ROW}|What?|Have you?")),
        [("0", "What?", "Have you?", "")],
    ),
    "QNLI dev": (
        *("QNLI", "dev", "QNLI/dev.tsv", tsv("index|question|sentence|label", "0|What came?|It came.|not_entailment")),
        [("0", "What came?", "It came.", "not_entailment")],
    ),
    "RTE dev": (
        *(
            "RTE",
            "dev",
            "RTE/dev.tsv",
            tsv("index|sentence1|sentence2|label", "0|Dana died.|She lives.|not_entailment"),
        ),
        [("0", "Dana died.", "She lives.", "not_entailment")],
    ),
    "WNLI test": (
        *("WNLI", "test", "WNLI/test.tsv", tsv("index|sentence1|sentence2", "0|Maude saw Dora.|Maude ran.")),
        [("0", "Maude saw Dora.", "Maude ran.", "")],
    ),
    "AX": (
        *("AX", "test", "diagnostic/diagnostic.tsv", tsv("index|sentence1|sentence2", "0|The cat sat.|It did not.")),
        [("0", "The cat sat.", "It did not.", "")],
    ),
    "SNLI tsv": (
        *("SNLI", "dev", "snli_1.0/snli_1.0_dev.txt"),
        tsv(
            SNLI + "|captionID|pairID|label1|label2|label3|label4|label5",
            f"neutral|{NLI_ROW}|Two women.|Sisters.|c0|p0n|neutral|entailment|neutral|neutral|neutral",
            f"-|{NLI_ROW}|Two men.|Brothers.|c1|p1|neutral|entailment|neutral|entailment|contradiction",
        ),
        [("p0n", "Two women.", "Sisters.", "neutral")],
    ),
    "SNLI jsonl": (
        *("SNLI", "test", "snli_1.0/snli_1.0_test.jsonl"),
        "".join(
            json.dumps({"annotator_labels": [], "gold_label": label, "pairID": "p", "sentence1": "a", "sentence2": "b"})
            + "\n"
            for label in ("entailment", "-", "contradiction")
        ),
        [("p", "a", "b", "entailment"), ("p", "a", "b", "contradiction")],
    ),
    "TREC": (
        *(
            "TREC",
            "train",
            "TREC/train_5500.label",
            "DESC:manner How did it ?\nLOC:city What is Logroño ?\n".encode("latin-1"),
        ),
        [("", "How did it ?", None, "DESC"), ("", "What is Logroño ?", None, "LOC")],
    ),
    "TREC fine": (
        *("TREC-50", "test", "TREC/TREC_10.label", "NUM:dist How far ?\n"),
        [("", "How far ?", None, "NUM:dist")],
    ),
}


def put(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def fields(rows):
    return [(row.id, row.text, row.pair, row.label) for row in rows]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("case", ORIGINAL)
def test_original_files(tmp_path, case, ending):
    name, part, file, content, rows = ORIGINAL[case]
    path = put(tmp_path / (file + ending), content)
    assert fields(glue.split(name, tmp_path, part)) == rows
    assert fields(glue.split(name, path.parent, part)) == rows


def test_broken_lines_of_qqp_are_left_out_and_told(tmp_path):
    head = "id|qid1|qid2|question1|question2|is_duplicate"
    path = put(tmp_path / "train.tsv", tsv(head, "1|2|3|a|b|0", "4|5|6|an open", "line|c|1", "7|8|9|d||1"))
    found = glue.split("qqp", tmp_path, "train")
    assert fields(found) == [("1", "a", "b", "0"), ("7", "d", "", "1")]
    assert found.notes == (f"Rows left out with more or fewer fields than the first line: 2 ({path}:3, {path}:4).",)
    assert "2 rows (text = question1, pair = question2, label = is_duplicate). Rows left out" in found.description


def test_rows_that_nobody_agreed_on_are_counted(tmp_path):
    *_, file, content, _ = ORIGINAL["SNLI tsv"]
    path = put(tmp_path / file, content)
    notes = glue.split("snli", tmp_path, "dev").notes
    assert notes == (f"Rows left out without agreement on a label: 1 ({path}:3).",)


def test_latin_1_is_told(tmp_path):
    *_, file, content, _ = ORIGINAL["TREC"]
    put(tmp_path / file, content)
    assert "read as Latin-1" in glue.split("trec", tmp_path, "train").description
    put(tmp_path / file, content.decode("latin-1"))
    again = glue.split("trec", tmp_path, "train")
    assert (again.notes, again[1].text) == ((), "What is Logroño ?")


def test_cola_as_its_authors_published_it(tmp_path):
    put(tmp_path / "in_domain_dev.tsv", tsv("gj04|1||The sailors rode."))
    with pytest.raises(UnmaskError, match=r"in_domain_dev.tsv \+ out_of_domain_dev.tsv"):
        glue.split("cola", tmp_path, "dev")
    put(tmp_path / "out_of_domain_dev.tsv.gz", tsv("clc95|0|*|Guess whom left.", "clc95|1||Guess who."))
    found = glue.split("cola", tmp_path, "dev")
    assert [row.label for row in found] == ["1", "0", "1"]
    assert found.notes == ("Read from in_domain_dev.tsv (1 row) and out_of_domain_dev.tsv.gz (2 rows).",)


def test_a_file_of_another_name_is_told_and_must_be_the_only_one(tmp_path):
    content = tsv("index|premise|hypothesis|gold_label", "14|Uh-huh.|Yes.|entailment")
    put(tmp_path / "dev_part.tsv.gz", content)
    found = glue.split("mnli", tmp_path, "dev")
    assert fields(found) == [("14", "Uh-huh.", "Yes.", "entailment")]
    assert found.notes == (
        "There is no dev_matched.tsv; dev_part.tsv.gz was read, which may not hold the official rows.",
    )
    put(tmp_path / "dev_small.tsv", content)
    with pytest.raises(
        UnmaskError, match=r"match: dev_small.tsv, dev_part.tsv.gz; rename the correct one to dev_match"
    ):
        glue.split("mnli", tmp_path, "dev")


def test_mismatched_rows_are_never_taken_for_matched_ones(tmp_path):
    put(tmp_path / "dev_mismatched.tsv", tsv("index|sentence1|sentence2|gold_label", "0|a|b|neutral"))
    assert len(glue.split("mnli-mm", tmp_path, "dev")) == 1
    with pytest.raises(UnmaskError, match=r"no dev rows of MNLI-m: there is no dev_matched.tsv"):
        glue.split("mnli", tmp_path, "dev")


@pytest.mark.parametrize(
    ("name", "part", "file", "content", "message"),
    [
        (
            "rte",
            "train",
            "train.tsv",
            tsv("sentence1|sentence2|label", "a|b|0"),
            r"train.tsv:2 has the label '0', .*RTE",
        ),
        ("stsb", "train", "train.tsv", tsv("sentence1|sentence2|score", "a|b|good"), r"train.tsv:2: the score 'good'"),
        ("rte", "train", "train.tsv", tsv("sentence1|sentence2", "a|b"), "add a column of labels"),
        ("rte", "train", "train.tsv", "", "is empty"),
        ("rte", "train", "train.tsv", tsv("index|sentence1|sentence2|label"), "has no rows"),
        ("rte", "train", "dev.tsv", "x", "has no train rows of RTE: there is no train.tsv, with or without"),
        ("rte", "tests", "dev.tsv", "x", "no RTE part 'tests'; did you mean 'test'"),
        ("ax", "train", "AX.tsv", "x", "no AX part 'train'"),
        (
            "trec",
            "train",
            "train.txt",
            "DESC:manner How ?\nWhat is it ?\n",
            r"train.txt:2 must be a class and a question",
        ),
        ("trec", "train", "train.txt", "DESK:manner How ?\n", r"train.txt:1 has the label 'DESK'"),
        ("trec", "train", "train.txt", "\n", "has no rows"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, name, part, file, content, message):
    put(tmp_path / file, content)
    with pytest.raises(UnmaskError, match=message) as error:
        glue.split(name, tmp_path, part)
    assert "\n" not in str(error.value)


def test_no_folder(tmp_path):
    with pytest.raises(UnmaskError, match="There is no folder"):
        glue.split("rte", tmp_path / "nowhere", "dev")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cola", "CoLA"),
        ("sst2", "SST-2"),
        ("STS_B", "STS-B"),
        ("mnli", "MNLI-m"),
        ("MNLI-MM", "MNLI-mm"),
        ("trec", "TREC-6"),
    ],
)
def test_names_are_found_whatever_their_dashes(name, found):
    assert glue.find(name).name == found


@pytest.mark.parametrize(("name", "near"), [("mrcp", "MRPC"), ("colla", "CoLA"), ("mnli-match", "MNLI-m")])
def test_unknown_names_have_a_nearest(name, near):
    with pytest.raises(UnmaskError, match=f"no benchmark '{name}'; did you mean '{near}'"):
        glue.find(name)


def test_official_facts():
    """Table 1 of the GLUE paper: sizes of the test sets (QNLI, RTE and AX as distributed) and metrics."""
    table = {
        "CoLA": (1_063, ("mcc",), 2),
        "SST-2": (1_821, ("accuracy",), 2),
        "MRPC": (1_725, ("accuracy", "f1"), 2),
        "STS-B": (1_379, ("pearson", "spearman"), 0),
        "QQP": (390_965, ("accuracy", "f1"), 2),
        "MNLI-m": (9_796, ("accuracy",), 3),
        "MNLI-mm": (9_847, ("accuracy",), 3),
        "QNLI": (5_463, ("accuracy",), 2),
        "RTE": (3_000, ("accuracy",), 2),
        "WNLI": (146, ("accuracy",), 2),
        "AX": (1_104, ("mcc",), 3),
    }
    known = {name: glue.find(name) for name in glue.GLUE}
    assert {name: (b.test_rows, b.metrics, len(b.labels)) for name, b in known.items()} == table
    assert [b.name for b in known.values() if not b.labels] == ["STS-B"]
    assert {b.submission for b in known.values()} == {f"{name}.tsv" for name in table}
    others = [glue.find(name) for name in ("SNLI", "TREC-6", "TREC-50")]
    assert [(b.submission, len(b.labels)) for b in others] == [("", 3), ("", 6), ("", 50)]


def test_the_metrics_are_those_that_are_computed():
    import numpy as np

    classes = metrics.of_classes(np.array([0, 1]), np.array([0, 1]), ["0", "1"])
    scores = metrics.of_scores(np.array([0.0, 1.0]), np.array([0.0, 2.0]))
    for benchmark in glue.BENCHMARKS.values():
        assert set(benchmark.metrics) <= set(classes if benchmark.labels else scores)

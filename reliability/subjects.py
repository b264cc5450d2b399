"""Subjects of the fuzzer: rows and texts, a valid file of each kind and every call that reads it; see folders.py."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from reading import READERS


@dataclass(frozen=True)
class Subject:
    """Files of one kind.

    write  writes valid files into an empty folder
    read   reads that folder, as a command would read files of the kind
    seal   writes checksums that fit the changed files, as an attacker would, so that the code after the check is tested
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    seal: Callable[[Path], None] | None = None


def of_files(read: Callable[[Path], Any], **files: bytes) -> Subject:
    """A subject of files by name (`__` for the dot); `read` gets the first of them."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    first = next(iter(named))

    def write(folder: Path) -> None:
        for name, content in named.items():
            (folder / name).write_bytes(content)

    return Subject(write, lambda folder: read(folder / first))


def every(*calls: Callable[[], Any]) -> None:
    """Make all calls, even if some raise UnmaskError; the last error is raised at the end."""
    from unmask.errors import UnmaskError

    refused = None
    for call in calls:
        try:
            call()
        except UnmaskError as error:
            refused = error
    if refused is not None:
        raise refused


# ------------------------------------------------------------------------------------------------ rows and texts


WAYS: tuple[Mapping[str, Any], ...] = ({}, {"skip": True}, {"labelled": False})
"""Ways to read rows: for training, without damaged rows, for prediction."""


def _table(path: Path) -> None:
    from unmask.data.labelled import dataset

    every(*(partial(dataset.read, path, **options) for options in WAYS))


QUESTIONS: tuple[Mapping[str, Any], ...] = ({}, {"scoring": True}, {"labelled": False})


def _spans(path: Path) -> Any:
    from unmask.data.labelled import dataset

    return dataset.read(path)


def _several(path: Path) -> Any:
    from unmask.data.labelled import dataset

    return dataset.read(path, text="text", several="|")


def _columns(path: Path) -> Any:
    from unmask.data.labelled import dataset

    return dataset.read(path, text="text", label="toxic,threat")


def _questions(path: Path) -> None:
    from unmask.data.labelled import squad

    every(*(partial(squad.read, path, **options) for options in QUESTIONS))


def _choices(path: Path) -> None:
    from unmask.data.labelled import choices

    every(*(partial(choices.read, path, **options) for options in WAYS))


def _pairs(path: Path) -> None:
    from unmask.data.labelled import pairs

    every(*(partial(pairs.read, path, skip=skip) for skip in (True, False)))


def _named_pairs(path: Path) -> Any:
    from unmask.data.labelled import pairs

    return pairs.read(path, names=("no", "yes"))


def _roles(path: Path) -> Any:
    from unmask.data.labelled.roles import read_roles

    return read_roles(path)


def _aligned(path: Path) -> Any:
    from unmask.data.bitext import reading as bitext

    return bitext.read(path, path.with_name("target.txt"))


def _bitext(path: Path) -> Any:
    from unmask.data.bitext import reading as bitext

    return bitext.read(path)


def _minimal_pairs(path: Path) -> Any:
    from unmask.runs import minimal_pairs

    return minimal_pairs.read([path])


def _documents(path: Path) -> Any:
    from unmask.data.text import inspect
    from unmask.data.text import reading as text

    found = list(text.documents([path]))
    return inspect.render(inspect.check(found))


def _to_answer(path: Path) -> None:
    from unmask.tasks import TASKS

    every(*(partial(_listed, task.rows_in, path) for task in TASKS.values()))


def _listed(read: Callable[..., Any], path: Path) -> None:
    found = read(path)
    if found is not None:
        list(found)


def _glue(folder: Path) -> None:
    from unmask.data.labelled import glue

    every(*(partial(glue.split, name, folder, "train") for name in GLUE))


GLUE = {
    "CoLA": ("train.tsv", "gj04\t1\t\tThe river is long.\ngj04\t0\t*\tLong river the is.\n"),
    "SST-2": ("train.tsv", "sentence\tlabel\na good film \t1\na bad one \t0\n"),
    "STS-B": (
        "train.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tnews\tm\t2012\t1\tnone\tnone\tA plane.\tA plane lands.\t5.000\n"
        "1\tnews\tm\t2012\t2\tnone\tnone\tA man.\tA field.\t0.500\n",
    ),
    "RTE": (
        "train.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n1\tA b.\tC d.\tnot_entailment\n",
    ),
    "QQP": (
        "train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWhy?\tWhat for?\t1\n2\t3\t4\tWho?\tHow?\t0\n",
    ),
    "MRPC": ("train.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA b.\tB a.\n0\t3\t4\tC.\tD.\n"),
}


def _write_glue(folder: Path) -> None:
    for name, (file, content) in GLUE.items():
        (folder / name).mkdir()
        (folder / name / file).write_text(content)


def _zst(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(content)


def _parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": ["a b", "c", "d"], "label": ["x", "y", "x"]})
    pyarrow.parquet.write_table(table, folder / "table.parquet")


CHOICES = (
    b'{"id": "1", "question": {"stem": "What is wet?", "choices": [{"text": "rain", "label": "A"}, '
    b'{"text": "fire", "label": "B"}]}, "answerKey": "A"}\n'
    b'{"id": "2", "question": {"stem": "What is hot?", "choices": [{"text": "ice", "label": "A"}, '
    b'{"text": "fire", "label": "B"}]}, "answerKey": "B"}\n'
)
SWAG = (
    b"video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    b"v1,1,A man sits. He,A man sits.,He,gold,eats.,sleeps.,flies.,sings.,0\n"
    b"v2,2,A dog runs. It,A dog runs.,It,gold,barks.,reads.,writes.,drives.,3\n"
)
SPANS = b'{"text": "Peter lives in Rome.", "entities": [[0, 5, "PER"], [15, 19, "LOC"]]}\n' * 2
STUDIO = (
    b'[{"data": {"text": "Peter lives in Rome."}, "annotations": [{"result": [{"value": {"start": 0, "end": 5, '
    b'"text": "Peter", "labels": ["PER"]}, "type": "labels"}]}]}]'
)
TAGGED = b'{"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}\n{"tokens": ["Peter"], "ner_tags": ["B-PER"]}\n'
ROLES = b"The - B-A0\nriver - I-A0\nruns V B-V\nfast - B-AM\n\nPeter - (A0*)\nsleeps V (V*)\nnow - (AM*\n. - *)\n"
CONLLU = (
    b"# sent_id = 1\n1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\triver\triver\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"
    b"# sent_id = 2\n1-2\tdont\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\tdo\tAUX\t_\t_\t0\troot\t_\t_\n"
    b"2\tnt\tnot\tPART\t_\t_\t1\tx\t_\t_\n\n"
)
BLIMP = b'{"sentence_good": "It is.", "sentence_bad": "It are.", "UID": "agreement", "field": "syntax"}\n' * 3
FLAT_SQUAD = (
    b'{"id": "1", "context": "The river is long.", "question": "What is long?", "answers": {"text": ["The river"], '
    b'"answer_start": [0]}}\n{"id": "2", "context": "The river.", "question": "Who?", "answers": {"text": [], '
    b'"answer_start": []}}\n'
)
NUMBERED = b"toxic,threat,text\n1,0,go away\n0,1,beware\n0,0,fine\n"

ROWS: dict[str, Subject] = {
    "csv": of_files(_table, table__csv=READERS["table.csv"].sample),
    "tsv": of_files(_table, table__tsv=READERS["table.tsv"].sample),
    "json lines": of_files(_table, table__jsonl=READERS["table.jsonl"].sample),
    "json": of_files(_table, table__json=READERS["table.json"].sample),
    "several labels": of_files(_several, table__csv=b"text,label\na,red|round\nb,red\nc,\n"),
    "columns of labels": of_files(_columns, table__csv=NUMBERED),
    "lists of labels": of_files(
        _table, table__jsonl=b'{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": []}\n'
    ),
    "parquet": Subject(_parquet, lambda folder: _table(folder / "table.parquet")),
    "conll": of_files(_table, words__conll=READERS["words.conll"].sample),
    "conllu": of_files(_table, words__conllu=CONLLU),
    "tagged lists": of_files(_table, tags__jsonl=TAGGED),
    "roles": of_files(_roles, roles__txt=ROLES),
    "spans": of_files(_spans, spans__jsonl=SPANS),
    "Label Studio": of_files(_spans, studio__json=STUDIO),
    "SQuAD": of_files(_questions, squad__json=READERS["squad.json"].sample),
    "SQuAD, flat": of_files(_questions, squad__jsonl=FLAT_SQUAD),
    "GLUE": Subject(_write_glue, _glue),
    "choices: ARC": of_files(_choices, choices__jsonl=CHOICES),
    "choices: SWAG": of_files(_choices, choices__csv=SWAG),
    "pairs": of_files(_pairs, pairs__tsv=b"sentence1\tsentence2\tscore\nA b.\tB a.\t4.5\nC.\tD.\t1\n"),
    "pairs, numbered labels": of_files(
        _named_pairs, pairs__csv=b"premise,hypothesis,label\nA b.,A.,1\nC.,D.,0\nE.,F.,-1\n"
    ),
    "triplets": of_files(_pairs, pairs__jsonl=b'{"anchor": "a", "positive": "b", "negative": "c"}\n' * 2),
    "bitext": of_files(_aligned, source__txt=b"the river\na film\nlong\n", target__txt=b"der Fluss\nein Film\nlang\n"),
    "bitext, a table": of_files(_bitext, pairs__tsv=b"the river\tder Fluss\na film\tein Film\n"),
    "bitext, JSON": of_files(
        _bitext,
        pairs__jsonl=b'{"translation": {"en": "the river", "de": "der Fluss"}}\n'
        b'{"translation": {"en": "a", "de": "b"}}\n',
    ),
    "minimal pairs": of_files(_minimal_pairs, agreement__jsonl=BLIMP),
    "lines to answer": of_files(_to_answer, lines__jsonl=READERS["squad.json"].sample.replace(b"\n", b"")),
    "text": of_files(_documents, text__txt=READERS["text.txt"].sample),
    "text, JSON": of_files(_documents, text__jsonl=b'{"text": "A river. And so on.", "id": 3}\n{"text": "More."}\n'),
    "text, gzip": of_files(_documents, text__txt__gz=gzip.compress(READERS["text.txt"].sample, mtime=0)),
    "text, Zstandard": Subject(
        lambda folder: (folder / "text.txt.zst").write_bytes(_zst(READERS["text.txt"].sample)),
        lambda folder: _documents(folder / "text.txt.zst"),
    ),
}

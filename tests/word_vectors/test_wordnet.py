"""WordNet: one small lexicon in both formats gives the same senses; damaged files are named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.runs.word_vectors import wordnet

STAGED = Path(__file__).resolve().parents[3] / "shared" / "data" / "wordnet"
# name -> part of speech, words, definition, hypernyms
SYNSETS = {
    "thing": ("n", ["thing"], "what there is", []),
    "beast": ("n", ["beast", "animal"], "a living thing that moves", ["thing"]),
    "bat-animal": ("n", ["bat", "chiropteran"], "a beast that flies at night", ["beast"]),
    "bat-tool": ("n", ["bat", "cricket bat"], "a piece of wood that hits a ball", ["thing"]),
    "bat-hit": ("v", ["bat"], "hit with a bat", []),
    "fine": ("a", ["fine", "all right"], "as it should be", []),
    "superb": ("s", ["superb", "fine"], "very good", []),
    "finely": ("r", ["finely", "fine"], "in a fine way", []),
}


def princeton(folder: Path) -> Path:
    """The lexicon as index and data files: offsets are bytes, counts of words hexadecimal, of pointers decimal."""
    folder.mkdir()
    files = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
    head = "  1 A licence stands here, in lines that begin with blanks.  \n"

    def line(name, offsets):
        part, words, definition, above = SYNSETS[name]
        given = " ".join(f"{word.replace(' ', '_')}{'(p)' * (part == 'a')} 0" for word in words)
        pointers = "".join(f" {'@' if i else '@i'} {offsets[one]} n 0000" for i, one in enumerate(above))
        other = f" ~ {offsets[name]} {part} 0000"  # a pointer of another kind
        return (
            f"{offsets[name]} 05 {part} {len(words):02x} {given} {len(above) + 1:03d}{pointers}{other} | {definition}"
            f'; "an example; of it"  \n'
        )

    offsets = dict.fromkeys(SYNSETS, "00000000")
    places = {kind: len(head) for kind in files.values()}
    for name, (part, *_) in SYNSETS.items():
        offsets[name] = f"{places[files[part]]:08d}"
        places[files[part]] += len(line(name, offsets).encode())
    for kind in set(files.values()):
        own = [name for name, (part, *_) in SYNSETS.items() if files[part] == kind]
        (folder / f"data.{kind}").write_text(head + "".join(line(name, offsets) for name in own))
        index: dict[str, list[str]] = {}
        for name in own:
            for word in SYNSETS[name][1]:
                index.setdefault(word.lower().replace(" ", "_"), []).append(offsets[name])
        rows = [f"{w} {kind[0]} {len(of)} 2 @ ~ {len(of)} 0 {' '.join(of)}  \n" for w, of in sorted(index.items())]
        (folder / f"index.{kind}").write_text(head + "".join(rows))
    return folder


def json_lines(folder: Path) -> Path:
    folder.mkdir()
    entries: dict[tuple[str, str], list[dict[str, str]]] = {}
    synsets = []
    for name, (part, words, definition, above) in SYNSETS.items():
        fields = {"id": name, "members": words, "definition": [definition], "partOfSpeech": part}
        synsets.append({**fields, **({"hypernym": above} if above else {})})
        for word in words:
            entries.setdefault((word, "a" if part == "s" else part), []).append({"id": "x", "synset": name})
    rows = [{"lemma": word, "pos": f"{part}-1", "sense": of} for (word, part), of in reversed(entries.items())]
    for name, objects in (("entries", rows), ("synsets", synsets)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(one) + "\n" for one in objects)
    return folder


@pytest.mark.parametrize("make", [princeton, json_lines])
@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("bat", ["bat-animal", "bat-tool", "bat-hit"]),
        ("Fine", ["fine", "superb", "finely"]),
        ("cricket bat", ["bat-tool"]),
        ("all right", ["fine"]),
    ],
)
def test_senses_and_what_is_above_them(make, word, wanted, tmp_path):
    lexicon = wordnet.read(make(tmp_path / "wordnet"))
    found = wordnet.senses(lexicon, word)
    assert [(s.part, list(s.words), s.definition) for s in found] == [SYNSETS[name][:3] for name in wanted]
    chains = {"bat-animal": ["beast", "thing"], "bat-tool": ["thing"]}
    paths = [[one.words[0] for one in wordnet.above(lexicon, s)] for s in found]
    assert paths == [chains.get(name, []) for name in wanted]
    with pytest.raises(UnmaskError, match="'bats' is not in this WordNet"):
        wordnet.senses(lexicon, "bats")


def test_the_verb_prints_senses(tmp_path, capsys):
    folder = str(princeton(tmp_path / "wordnet"))
    main(["words", "senses", "--wordnet", folder, "bat"])
    said = capsys.readouterr().out
    assert "bat: 3 senses" in said
    assert "  n  bat, chiropteran: a beast that flies at night\n     < beast < thing\n" in said
    main(["words", "senses", "--wordnet", folder, "bat", "fine", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [sense["above"] for sense in found["bat"]] == [["beast", "thing"], ["thing"], []]


def test_what_is_not_wordnet_is_named(tmp_path):
    with pytest.raises(UnmaskError, match=r"holds no WordNet: give a folder with index\.noun"):
        wordnet.read(tmp_path)
    folder = princeton(tmp_path / "damaged")
    (folder / "data.noun").write_text("nothing\n")
    with pytest.raises(UnmaskError, match=r"data\.noun is damaged at \d+n"):
        wordnet.read(folder).senses("bat")
    (folder / "index.noun").write_text("bat n many\n")
    with pytest.raises(UnmaskError, match=r"index\.noun is damaged at 1"):
        wordnet.read(folder).senses("bat")
    folder = json_lines(tmp_path / "lines")
    (folder / "entries.jsonl").write_text('{"lemma": "bat", "pos": "n", "sense": [{"synset": "a"}]}\n')
    (folder / "synsets.jsonl").write_text(
        '{"id": "a", "members": ["bat"], "partOfSpeech": "n", "definition": [""], "hypernym": ["a"]}\n'
    )
    lexicon = wordnet.read(folder)  # plain files come first
    with pytest.raises(UnmaskError, match="circle at a"):
        list(wordnet.above(lexicon, lexicon.senses("bat")[0]))
    (folder / "synsets.jsonl").write_text("[]\n")
    with pytest.raises(UnmaskError, match=r"synsets\.jsonl is damaged at 1"):
        wordnet.read(folder).senses("bat")


def test_a_panda_is_a_mammal_in_the_whole_wordnet():
    if not STAGED.is_dir():
        pytest.skip("needs shared/data/wordnet, which is not part of the project")
    lexicon = wordnet.read(STAGED)
    giant, lesser = wordnet.senses(lexicon, "panda")
    names = [one.words[0] for one in wordnet.above(lexicon, giant)]
    assert names == [one.words[0] for one in wordnet.above(lexicon, lesser)]
    assert names[:4] == ["procyonid", "carnivore", "placental", "mammal"]
    assert names[-1] == "entity"
    assert len(wordnet.senses(lexicon, "good")) == 27

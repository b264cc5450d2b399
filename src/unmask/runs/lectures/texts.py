"""Entries on text to text: scores of trees, of dialogues, of code."""

from __future__ import annotations

from unmask.data.bitext import trees
from unmask.metrics import parsing
from unmask.metrics.code import parses
from unmask.metrics.diversity import distinct
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Table

DOG = (
    "(S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town)))) (. .))",
    "(S (NP (DT The) (NN dog)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town))))) (. .))",
)
"""A tree, and another one of the same words: the town goes with the cat instead of with the seeing."""


@entry("A tree as a sequence, and its F1", code="metrics/parsing.py", test="metrics/test_parsing.py")
def tree_scores(quick: bool) -> Shown:
    """A parser that writes text gives each constituent an opening and a closing bracket with its label, and each word
    the tag XX (Vinyals et al. 2015, "Grammar as a Foreign Language"). It is scored as `evalb` counts: a constituent is
    right if the reference has one with the same label and the same words; punctuation does not count.

    `unmask train seq2seq-attention --pairs train.mrg --metric parsing` trains such a parser.
    """
    texts = [trees.linear(trees.parse(tree)) for tree in DOG]
    words = trees.words(trees.parse(DOG[0]))
    true, said = (parsing.read(text) for text in texts)
    found, wanted = (parsing.counted(tree, true.tags) for tree in (said, true))
    rows = [
        (label, " ".join(words[begin:end]), wanted[label, begin, end], found[label, begin, end])
        for label, begin, end in sorted(found | wanted, key=lambda one: (one[1], -one[2]))
    ]
    scores = parsing.matches([texts[1]], [texts[0]])
    return Shown(
        f"{scores.common} of the {scores.written} constituents are right, and the reference has {scores.true}: "
        f"precision {scores.precision:.3f}, recall {scores.recall:.3f}, F1 {scores.f1:.3f}.",
        [
            Table("Sequences", ["", "text"], [("reference", texts[0]), ("output", texts[1])]),
            Table("Constituents", ["label", "words", "in the reference", "in the output"], rows),
        ],
    )


@entry("Distinct words of a dialogue", code="metrics/diversity.py", test="metrics/test_code_and_diversity.py")
def distinct_words(quick: bool) -> Shown:
    """A model of dialogues that is trained on the next turn prefers answers that suit every question. Distinct-1 and
    distinct-2 are the different words and pairs of neighbouring words in all answers, divided by the number of words
    (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models").

    `unmask train transformer-tiny --pairs train.jsonl --metric dialogue --turns 3` learns each turn from the three
    before it, and `unmask evaluate` compares it with the answer to the most similar known turn.
    """
    answers = {
        "one answer to all": ["I do not know .", "I do not know .", "I do not know ."],
        "three answers": ["I do not know .", "Soup with bread , please .", "The train leaves at nine ."],
    }
    rows = [(name, *(distinct(n, texts, texts).value / 100 for n in (1, 2))) for name, texts in answers.items()]
    return Shown(
        f"One answer to all questions has distinct-1 {rows[0][1]:.2f}, and three answers {rows[1][1]:.2f}.",
        [Table("Answers to three questions", ["", "distinct-1", "distinct-2"], rows)],
    )


@entry("Lines of code that parse", code="metrics/code.py", test="metrics/test_code_and_diversity.py")
def lines_of_code(quick: bool) -> Shown:
    """A model that writes one line of Python for each line of English often stops in the middle of a statement, as the
    line `else:` does. A line counts as code if Python parses it together with the shortest rest of its statement: a
    body, the `if` of an `else`, the function of a decorator. Nothing is executed.

    `unmask train transformer-tiny --pairs train.anno train.code --metric code` learns from aligned lines; BLEU and the
    share of exact lines are printed beside the share that parses.
    """
    lines = [
        "x = self.names[1:]",
        "if x in names:",
        "else:",
        "except KeyError as error:",
        "@cache",
        "if x in names",
        "x =",
    ]
    rows = [(line, "yes" if parses(line) else "no") for line in lines]
    count = sum(map(parses, lines))
    return Shown(f"{count} of the {len(lines)} lines parse.", [Table("Lines", ["line", "parses"], rows)])


ENTRIES = (tree_scores, distinct_words, lines_of_code)

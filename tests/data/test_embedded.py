"""The embedded corpus: layout and markup rules, labels, exclusion without leakage, and the real installed text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text import docstrings, embedded, layout, markup
from unmask.data.text.docstrings import Passage, read
from unmask.data.text.sentences import sentences
from unmask.errors import UnmaskError

GOOGLE = """
Compute the weighted mean of ``values`` along an axis.

The weights are normalised first, so that
they need not add up to one:

    >>> mean([1, 2], weights=[1, 1])
    1.5

Args:
    values (Tensor): the input tensor.
    weights (Tensor, optional): The weights of the values. If ``None``, all
        values weigh the same.
        Default: ``None``.
    *rest: further arguments that are passed on to the reducer

Returns:
    Tensor: The mean of the values in the shape of the input.

Raises:
    ValueError: If the weights do not have the shape of the values.

Example::

    this is not prose but the code of an example

.. note::
    This function may be slow for very large inputs.

.. versionadded:: 1.2
    The versionadded body is not kept at all.
"""

NUMPY = """
sort(a, axis=-1, order=None)

Return a sorted copy of an array.

.. deprecated:: 1.0
    Use the other function that is better.

Parameters
----------
a : array_like
    Array to be sorted.
axis : {int, None}, optional
    Axis along which to sort. If None, the array is flattened
    before sorting.

Returns
-------
sorted_array : ndarray
    Array of the same type and shape as `a`.

See Also
--------
argsort : Indirect sort of an array along an axis.

Notes
-----
The various sorting algorithms are characterized by their average speed [1]_.

===========  =======  =============
   kind      speed    worst case is
===========  =======  =============
'quicksort'     1     the one that is bad
===========  =======  =============

As shown in [1]_ and in Section 2, it is quick.

References
----------
.. [1] A. Author, "The title of a book that nobody should read here."
"""

SPHINX = """
Send a message to the *recipient* over the wire.

Look at :func:`~package.module.receive` or the :ref:`user guide <guide>` for the other side.

.. code-block:: python

    the code of the block is not a part of the text

:param str sender: The person sending the message.
:type sender: str
:param priority: The priority of the message, which can be
    a number between one and five.
:returns: The message id that the server gave.
:rtype: int
"""

INSTALLED = ("python", "numpy", "networkx")


def clean(docstring: str, **options: bool) -> list[str]:
    """The plain sentences of a docstring."""
    return [
        markup.plain(sentence)
        for paragraph in layout.paragraphs(docstring)
        for sentence in markup.prose(markup.inline(paragraph, **options), sentences)
    ]


def test_google_style() -> None:
    assert clean(GOOGLE) == [
        "Compute the weighted mean of values along an axis.",
        "The weights of the values.",
        "If None, all values weigh the same.",
        "Further arguments that are passed on to the reducer.",
        "The mean of the values in the shape of the input.",
        "If the weights do not have the shape of the values.",
        "This function may be slow for very large inputs.",
    ]


def test_numpy_style() -> None:
    assert clean(NUMPY) == [
        "Return a sorted copy of an array.",
        "Array to be sorted.",
        "Axis along which to sort.",
        "If None, the array is flattened before sorting.",
        "Array of the same type and shape as a.",
        "The various sorting algorithms are characterized by their average speed.",
    ]


def test_sphinx_style() -> None:
    assert clean(SPHINX) == [
        "Send a message to the recipient over the wire.",
        "Look at receive or the user guide for the other side.",
        "The person sending the message.",
        "The priority of the message, which can be a number between one and five.",
        "The message id that the server gave.",
    ]


def test_markdown_and_lists() -> None:
    text = """
    # A title that is dropped

    Read the [user guide](https://example.org/guide) for a list of the options.

    ```python
    all of this is code and not a word of it is kept
    ```
    - The first of the items is on
      two lines of the source.
    - `name`: The second of them is labelled.
    1. The third of the items is numbered.
    """
    assert clean(text) == [
        "Read the user guide for a list of the options.",
        "The first of the items is on two lines of the source.",
        "The second of them is labelled.",
        "The third of the items is numbered.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "See https://example.org for the rest of the story.",  # a link
        r"The result is :math:`\sum_i x_i` in all of the cases.",  # a formula
        "This is {placeholder} of the given format string.",  # a template
        "Copyright (c) 2001 by the authors of this module.",
        "x = f(y) is the value of the function",
        "foo bar baz qux quux corge",  # no function words
        "The signature of the function is:",  # leads to something that is gone
        "and the other one is the value of it.",  # follows something that is gone
    ],
)
def test_what_is_no_prose_is_dropped(sentence: str) -> None:
    assert clean(sentence) == []


def test_a_formula_at_the_end_is_cut_off() -> None:
    text = r"Applies an affine transformation to the incoming data: :math:`y = xA^T + b`."
    assert clean(text) == ["Applies an affine transformation to the incoming data."]


def test_a_compound_wrapped_at_its_hyphen_is_joined() -> None:
    assert clean("All of the text is already pre-\nformatted.") == ["All of the text is already pre-formatted."]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("``axis`` and `name`", ["axis", "name"]),
        (":attr:`input` or :class:`~torch.nn.Linear`", ["input", "Linear"]),
        (":func:`the mean <numpy.mean>`", ["numpy.mean"]),
        ("``*args`` and ``**kwargs``", ["*args", "**kwargs"]),
        ("[`Trainer`] and [``Trainer``]", ["Trainer", "Trainer"]),
        (":ref:`some title <label>` and `link <https://a.b>`_ and `target`_", []),
        ("plain words, *emphasis*, **strong** and |substitution|", []),
    ],
)
def test_inline_code_is_marked(text: str, code: list[str]) -> None:
    marked = markup.inline(text)
    assert [piece[1:-1] for piece in markup._CODE.findall(marked)] == code
    assert not set("`|<>") & set(marked)


def test_backticks_can_be_formulas() -> None:
    marked = markup.inline("a polynomial `f` in ``ring``", backticks_are_formulas=True)
    assert markup.plain(marked) == "a polynomial f in ring"
    assert markup._CODE.findall(marked) == [f"{markup.OPEN}ring{markup.CLOSE}"]


@given(st.text(alphabet=" \n`*_:.|<>[]()~=-+\\>'\"abcXYZ019\ue000\ue003", max_size=200))
def test_any_text_is_survived(text: str) -> None:
    for sentence in clean(text):
        assert sentence.strip()
        assert "\n" not in sentence


def tagged(text: str) -> list[tuple[str, bool]] | None:
    result = embedded.tag(markup.inline(text), "p:m.py")
    return None if result is None else list(zip(result.words, result.tags, strict=True))


def test_labels_come_from_the_markup() -> None:
    assert tagged("If ``axis`` is given, the caller's `name` is the first one (see :meth:`copy`).") == [
        ("If", False),
        ("axis", True),
        ("is", False),
        ("given", False),
        (",", False),
        ("the", False),
        ("caller's", False),
        ("name", True),
        ("is", False),
        ("the", False),
        ("first", False),
        ("one", False),
        ("(", False),
        ("see", False),
        ("copy", True),
        (")", False),
        (".", False),
    ]


def test_code_touching_other_text_is_cut_at_its_bounds() -> None:
    words = tagged("Take the `optimizer`'s state and all ``list``-like objects from it.")
    assert words is not None
    assert [w for w, code in words if code] == ["optimizer", "list"]
    assert ("'s", False) in words
    assert ("-", False) in words


@pytest.mark.parametrize(
    "text",
    [
        "There is no code in this sentence at all.",
        "The `n_samples` of the data is never a plain word.",  # easy: nothing looks plain
        "It returns `None` or `True` in all of these cases.",
        "The value of `name` and of other_name must be equal.",  # unmarked code
        "The value of `name` is that of get() in the module.",
        "The value of `name` is set in os.path by the user.",
        "The value of `name` is the square of x by default.",
        "The value of `name` goes to the *other* one as well.",  # emphasis may be code
        "Use `name` here.",  # too short
        "Use `name` as in " + "very " * 60 + "long ones.",
        "If `name` is given, `f(x, y) + g(z) ** 2` is the result.",  # an expression
    ],
)
def test_doubtful_or_easy_sentences_are_not_tagged(text: str) -> None:
    assert tagged(text) is None


def passage(source: str, *paragraphs: str) -> Passage:
    return Passage(source, tuple(tuple(markup.inline(p).split("|")) for p in paragraphs))


@pytest.fixture
def little_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = "The `axis` along which the values are added up."
    corpus = (
        passage("p:a.py", f"{shared}|Only the first file says so.", "It is repeated in another file."),
        passage("p:b.py", shared.replace("`", "``"), "It is repeated in  another file", "The second `file` is new."),
        passage("p:c.py", "It is repeated in another file.", "The third one stands alone."),
    )  # fmt: skip
    monkeypatch.setattr(embedded, "passages", lambda packages: corpus)


@pytest.mark.usefixtures("little_corpus")
def test_repeated_paragraphs_are_dropped() -> None:
    assert [(d.source, d.text.split("\n")) for d in embedded.documents()] == [
        (
            "p:a.py",
            [
                "The axis along which the values are added up. Only the first file says so.",
                "It is repeated in another file.",
            ],
        ),
        ("p:b.py", ["The axis along which the values are added up.", "The second file is new."]),
        ("p:c.py", ["The third one stands alone."]),
    ]


@pytest.mark.usefixtures("little_corpus")
def test_excluded_sources_leave_no_sentence_behind() -> None:
    kept = list(embedded.documents(exclude=lambda source: source == "p:b.py"))
    assert [(d.source, d.text) for d in kept] == [
        ("p:a.py", "Only the first file says so."),
        ("p:c.py", "The third one stands alone."),
    ]


@pytest.mark.usefixtures("little_corpus")
def test_no_sentence_is_tagged_twice() -> None:
    mentions = list(embedded.code_mentions())
    assert [mention.source for mention in mentions] == ["p:a.py", "p:b.py"]
    assert [mention.words[:2] for mention in mentions] == [("The", "axis"), ("The", "second")]


def test_heldout_is_stable_and_of_the_right_size() -> None:
    sources = [f"torch:file{i}.py" for i in range(4000)]
    tenth = [s for s in sources if embedded.heldout(s, 0.1)]
    assert 320 < len(tenth) < 480
    assert all(embedded.heldout(s, 0.2) for s in tenth)
    assert tenth != [s for s in sources if embedded.heldout(s, 0.1, salt="other")]
    assert not any(embedded.heldout(s, 0.0) for s in sources)
    assert all(embedded.heldout(s, 1.0) for s in sources)
    assert embedded.heldout("torch:torch/nn/modules/linear.py", 0.5) is True  # pinned: the same on every machine


def test_reading_a_module(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""The module does this and that."""\n'
        "raise SystemExit('this must never run')\n"
        'class A:\n    """The class is a part of it."""\n'
        '    x = 1\n    """The attribute is documented below."""\n'
        '    def f(self):\n        """The method belongs to the class."""\n'
        'add_docstr(abs, r"""\nabs(x) -> Tensor\n\nThe literal is a docstring too.\n"""'
        ' + """\n{x} of it.\n""".format(**k))\n'
        'add_newdoc("m", "n", ("o", """\n    The tuple holds the last of them.\n    """))\n'
        'query = """\n    This string is not a part of the documentation.\n    """\n'
    )
    (found,) = read("p:module.py", str(module))
    assert found.source == "p:module.py"
    assert [" ".join(paragraph) for paragraph in found.paragraphs] == [
        "The module does this and that.",
        "The class is a part of it.",
        "The attribute is documented below.",
        "The method belongs to the class.",
        "The literal is a docstring too.",
        "The tuple holds the last of them.",
    ]


def test_a_long_module_is_cut_at_a_class(tmp_path: Path) -> None:
    module = tmp_path / "long.py"
    body = "\n".join(f"    Sentence number {i} is one of the many of this class.\n" for i in range(300))
    module.write_text("".join(f'class {name}:\n    """\n{body}    """\n' for name in "ABC"))
    assert [p.source for p in read("p:long.py", str(module))] == ["p:long.py", "p:long.py#C"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00 '''", b"def broken(: '''", b"'''\x00'''", b""])
def test_files_that_cannot_be_parsed_are_passed_over(tmp_path: Path, content: bytes) -> None:
    module = tmp_path / "broken.py"
    module.write_bytes(content)
    assert read("p:broken.py", str(module)) == []
    assert read("p:missing.py", str(tmp_path / "missing.py")) == []


def test_an_unknown_package_is_named() -> None:
    with pytest.raises(UnmaskError, match="did you mean 'numpy'"):
        list(embedded.documents(packages=["nunpy"]))


def test_children_and_this_process_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = docstrings.passages.__wrapped__(("joblib",))
    monkeypatch.setattr(docstrings.sys, "executable", "/bin/false")
    assert docstrings.passages.__wrapped__(("joblib",)) == parallel
    assert len(parallel) > 5


def test_the_installed_corpus() -> None:
    documents = list(embedded.documents(packages=INSTALLED))
    text = [d.text for d in documents]
    assert sum(map(len, text)) > 2_000_000
    assert len({d.source for d in documents}) == len(documents)
    assert {d.source.partition(":")[0] for d in documents} == set(INSTALLED)
    assert not any("\n\n" in t or markup._MARKS.search(t) or ">>>" in t or "``" in t for t in text)
    lines = [line for t in text for line in t.split("\n")]
    assert all(markup._ENDED.search(line) for line in lines)
    assert sum(d.source.startswith("python:pydoc_data/topics.py#") for d in documents) > 30


def test_installed_mentions_do_not_leak_into_the_rest() -> None:
    def held(source: str) -> bool:
        return embedded.heldout(source, 0.2, salt="test")

    everything = list(embedded.code_mentions(packages=INSTALLED))
    mentions = [m for m in everything if held(m.source)]
    text = {embedded._key(s) for d in embedded.documents(held, packages=INSTALLED) for s in sentences(d.text)}
    assert len(mentions) > 100
    assert not any(embedded._key(" ".join(m.words)) in text for m in mentions)
    assert len({m.words for m in everything}) == len(everything) > 1000
    assert {m.source for m in everything} <= {p.source for p in docstrings.passages(INSTALLED)}
    positive = sum(sum(m.tags) for m in everything) / sum(len(m.tags) for m in everything)
    assert 0.05 < positive < 0.3


def test_facts_name_the_versions() -> None:
    facts = embedded.facts(packages=INSTALLED)
    assert facts["python"].version == sys.version.split()[0]
    assert facts["networkx"].documents > 100
    assert facts["networkx"].bytes > 5 * facts["networkx"].words > 100_000


def test_a_script_without_a_guard_can_use_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from unmask.data.text import embedded\nprint(len(list(embedded.documents(packages=['joblib']))))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert int(done.stdout) == len(list(embedded.documents(packages=["joblib"])))

"""Dates: each text is what its locale writes for its day and can be read back; no text means two days; splits apart."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pytest
from babel import Locale
from babel.dates import format_date

from unmask.data.bitext import dates
from unmask.data.bitext.numbers import vector
from unmask.errors import UnmaskError


def test_each_text_is_what_its_locale_writes():
    for w in dates.written(2000, seed=1):
        assert w.pattern in dates.patterns(w.locale)
        assert w.text == format_date(w.date, w.pattern, locale=w.locale)
        assert str(w.date.year) in w.text
    assert {w.locale for w in dates.written(2000, seed=1)} == set(dates.LOCALES)


def read_back(text, locale, pattern):
    """The day of a text, by a regular expression made of the pattern and the names of the locale."""
    found = Locale.parse(locale)
    months = {
        name: number
        for style in found.months.values()
        for names in style.values()
        for number, name in names.items()
        if not name.isdigit()
    }
    expression = ""
    for quoted, letters, other in re.findall(
        r"'([^']+)'|([yMdEcG])(?:\2)*|([^'])".replace(r"\2", r"(?<=\2)\2"), pattern
    ):
        expression += {
            "y": r"(?P<y>\d{4})",
            "d": r"(?P<d>\d\d?)",
            "M": "(?P<M>MONTH)",
            "": re.escape(quoted or other),
        }.get(letters, ".+?")
    words = "|".join(re.escape(name) for name in sorted(months, key=len, reverse=True))
    expression = expression.replace("MONTH", rf"{words}|\d\d?")
    match = re.fullmatch(expression, text)
    assert match, (text, locale, pattern, expression)
    month = match["M"]
    return datetime.date(int(match["y"]), months.get(month) or int(month), int(match["d"]))


def test_texts_can_be_read_back():
    for w in dates.written(1500, seed=2):
        assert read_back(w.text, w.locale, w.pattern) == w.date


def test_no_text_means_two_days():
    """Over all locales and patterns, for every month and every day of a month, in one year."""
    meaning = {}
    days = [datetime.date(2007, 1, 1) + datetime.timedelta(i) for i in range(365)]
    for locale in dates.LOCALES:
        for pattern in dates.patterns(locale):
            for day in days[:: 1 if len(pattern) < 12 else 3]:
                text = format_date(day, pattern, locale=locale)
                assert meaning.setdefault(text, day) == day, (text, locale, pattern)
    assert len(meaning) > 20_000


@pytest.mark.parametrize("locale", dates.LOCALES)
def test_every_locale_has_patterns_that_are_clear(locale):
    found = dates.patterns(locale)
    assert len(found) >= 3
    assert len({format_date(datetime.date(2007, 11, 4), p, locale=locale) for p in found}) >= 2
    for pattern in found:
        assert not re.search(r"(?<!y)yy(?!y)|^[dM]+[/-]", pattern)


@pytest.mark.parametrize(
    ("locale", "text"),
    [
        ("en_US", "Sunday, March 4, 2007"),
        ("en_GB", "4 March 2007"),
        ("de", "04.03.2007"),
        ("fr", "4 mars 2007"),
        ("ko", "2007년 3월 4일"),
        ("ja", "2007年3月4日"),
        ("ru", "04.03.2007"),
        ("ar", "4 مارس 2007"),
        ("th", "4 มี.ค. 2007"),  # not 2550, the year of the Buddha
        ("fa", "4 مارس 2007"),  # not 1385, the Persian year
    ],
)
def test_texts_that_everyone_knows(locale, text):
    day = datetime.date(2007, 3, 4)
    assert text in {format_date(day, pattern, locale=locale) for pattern in dates.patterns(locale)}


def test_splits_share_no_day_and_no_text():
    found = {split: dates.written(20_000, seed=7, split=split) for split in dates.SPLITS}
    other = dates.written(5000, seed=8, split="test")
    for get in (lambda w: w.date, lambda w: w.text):
        train, dev, test = ({get(w) for w in found[split]} for split in dates.SPLITS)
        assert not train & dev
        assert not train & test
        assert not dev & test
        assert not train & {get(w) for w in other}
    assert sum(len(dates._days(split)) for split in dates.SPLITS) == (dates.LAST - dates.FIRST).days + 1
    assert len(dates._days("dev")) == pytest.approx((dates.LAST - dates.FIRST).days / 20, rel=0.05)
    years = [w.date.year for w in found["train"]]
    assert (min(years), max(years)) == (1583, 2499)


def test_pairs_are_a_function_of_seed_and_split():
    found = dates.pairs(500, seed=3, split="dev")
    assert [*found] == [*dates.pairs(500, seed=3, split="dev")]
    assert [*found] != [*dates.pairs(500, seed=4, split="dev")]
    assert [*found] == [(w.text, w.date.isoformat()) for w in dates.written(500, seed=3, split="dev")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", target) for target in found.targets)
    assert found.description == "dates (dev): 500 pairs"
    assert len(dates.pairs(0)) == 0


def test_a_vector_says_all_of_a_date():
    found = dates.written(3000, seed=3, split="dev")
    facts = np.array([dates.facts(w) for w in found])
    ends = np.cumsum(list(dates.SIZES.values()))
    groups = np.split(facts, ends[:-1], 1)
    assert facts.shape == (3000, ends[-1])
    assert all((group.sum(1) == 1).all() for group in groups)
    weekday, day, month, *year, locale, pattern = (group.argmax(1) for group in groups)
    for i, w in enumerate(found):
        digits = int("".join(str(digit[i]) for digit in year))
        assert (w.date.weekday(), w.date.day, w.date.month, w.date.year) == (
            weekday[i],
            day[i] + 1,
            month[i] + 1,
            digits,
        )
        assert (dates.LOCALES[locale[i]], dates.patterns(w.locale)[pattern[i]]) == (w.locale, w.pattern)
    pairs = dates.vectors(3000, seed=3, split="dev")
    assert pairs.targets == [w.text for w in found]
    assert [vector(source).tolist() for source in pairs.sources[:50]] == facts[:50].tolist()
    assert pairs.description == "date-vectors (dev): 3,000 pairs"
    assert max(len(dates.patterns(name)) for name in dates.LOCALES) <= dates.SIZES["pattern"]


def test_errors(monkeypatch):
    with pytest.raises(UnmaskError, match="no split 'tets'; did you mean 'test'"):
        dates.pairs(3, split="tets")
    monkeypatch.setitem(__import__("sys").modules, "babel", None)
    with pytest.raises(UnmaskError, match=r"unmask\[translation\]"):
        dates._babel()

"""Dates: the embedded pairs that need no data. Dates as people write them in many languages, and as ISO 8601 has them.

Unlimited and right by construction: the CLDR patterns and names of each language, as Babel applies them, to a date
that is known. The task on which attention is usually shown to beginners, here with every script that there is.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from unmask.data.bitext.reading import Bitext, Report
from unmask.errors import needs, unknown

# Written with Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic, Devanagari, Bengali, Tamil, Telugu, Thai,
# Hangul, Kana and Han. CLDR counts Thai years from the Buddha and Persian ones by the sun; Babel applies the patterns
# of the Gregorian calendar everywhere, with the digits 0 to 9, so all of these mean the date that they seem to.
LOCALES = (
    *("en_US", "en_GB", "de", "nl", "sv", "da", "nb", "is", "fr", "es", "it", "pt", "ro", "ca"),
    *("pl", "cs", "sk", "sl", "ru", "uk", "bg", "sr", "lt", "lv", "el", "fi", "et", "hu", "eu", "tr"),
    *("hy", "ka", "kk", "ar", "fa", "ur", "he", "hi", "bn", "ta", "te", "th", "vi", "id", "sw"),
    *("ko", "ja", "zh", "zh_Hant"),
)
SPLITS = ("train", "dev", "test")
SIZES = {  # of the groups of numbers in `facts`
    "day of the week": 7,
    "day": 31,
    "month": 12,
    **{f"digit {i} of the year": 10 for i in range(1, 5)},
    "language": len(LOCALES),
    "pattern": 5,
}
FIRST, LAST = datetime.date(1583, 1, 1), datetime.date(2499, 12, 31)  # the calendar begins in October 1582

# An order that no other language reads differently: the month is a word, the year comes first, or dots stand between
# day, month and year. 3/4/2005 is in March or in April, and 3.4.05 in any century.
_CLEAR = re.compile(r"(?=.*(?<!y)y(?!y)).*(MMM|^y\W|^y年|^dd?\. ?MM?\. ?y)")


@dataclass(frozen=True, slots=True)
class Written:
    """A date as a language writes it: `pattern` of `locale` applied to `date` gives `text`."""

    text: str
    date: datetime.date
    locale: str
    pattern: str


def pairs(count: int, *, seed: int = 0, split: str = "train") -> Bitext:
    """Dates as people write them, and in the form 2005-03-04; for the arguments and errors see `written`."""
    found = written(count, seed=seed, split=split)
    report = Report(f"dates ({split})", count)
    return Bitext([w.text for w in found], [w.date.isoformat() for w in found], report, _lines(count))


def vectors(count: int, *, seed: int = 0, split: str = "train") -> Bitext:
    """What a date is, as a vector (`facts`), and the date as people write it: pairs for a model that writes from
    vectors; for the arguments and errors see `written`."""
    found = written(count, seed=seed, split=split)
    sources = [" ".join(map(str, facts(one))) for one in found]
    return Bitext(sources, [one.text for one in found], Report(f"date-vectors ({split})", count), _lines(count))


def facts(one: Written) -> list[int]:
    """Numbers, 0 or 1, as many as SIZES has in sum, that say all of a written date: one of each group is 1."""
    chosen = [one.date.weekday(), one.date.day - 1, one.date.month - 1, *map(int, f"{one.date.year:04}")]
    chosen += [LOCALES.index(one.locale), patterns(one.locale).index(one.pattern)]
    return [int(i == k) for size, k in zip(SIZES.values(), chosen, strict=True) for i in range(size)]


def written(count: int, *, seed: int = 0, split: str = "train") -> list[Written]:
    """`count` dates of a split, a pure function of (count, seed, split): the language, the pattern and the day are
    drawn evenly, the day from FIRST to LAST.

    A day belongs to one split whatever the seed (90 % train, 5 % dev, 5 % test), and no text means two days, so a text
    of one split is in no other. Raises UnmaskError for an unknown split, and without Babel.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    days = _days(split)
    ordinals = days[rng.integers(len(days), size=count)].tolist()
    locales = rng.integers(len(LOCALES), size=count).tolist()
    shares = rng.random(count).tolist()
    return [_written(LOCALES[i], day, share) for i, day, share in zip(locales, ordinals, shares, strict=True)]


@cache
def patterns(locale: str) -> tuple[str, ...]:
    """The CLDR patterns of a locale that can be read in one way: full, long, medium and short, those that are clear,
    and the full one with a short name of the day. Raises UnmaskError without Babel."""
    formats = _babel().Locale.parse(locale).date_formats
    usual = [formats[name].pattern for name in ("full", "long", "medium", "short")]
    brief = re.sub("EEEE|cccc", "EEE", usual[0])
    return tuple(pattern for pattern in dict.fromkeys([*usual, brief]) if _CLEAR.search(pattern))


def _written(locale: str, ordinal: int, share: float) -> Written:
    """The date in the pattern that lies at `share`, from 0 to 1, of those of the locale."""
    among = patterns(locale)
    date, pattern = datetime.date.fromordinal(ordinal), among[int(share * len(among))]
    return Written(_pattern(pattern).apply(date, _locale(locale)), date, locale, pattern)


def _days(split: str) -> np.ndarray:
    """[days] ordinals of the days of a split: in 20 shares by a hash, one for dev and one for test."""
    days = np.arange(FIRST.toordinal(), LAST.toordinal() + 1, dtype=np.int64)
    share = (days.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(20)
    return days[{"train": share > 1, "dev": share == 0, "test": share == 1}[split]]


def _lines(count: int) -> list[int]:
    return list(range(1, count + 1))


@cache
def _locale(name: str) -> Any:
    return _babel().Locale.parse(name)


@cache
def _pattern(pattern: str) -> Any:
    from babel.dates import parse_pattern

    return parse_pattern(pattern)


def _babel() -> Any:
    try:
        import babel
    except ImportError:
        raise needs("Dates in many languages need Babel", "translation") from None
    return babel

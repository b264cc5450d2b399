"""Dates: generated pairs of dates as people write them in many languages, and in ISO 8601.

They are unlimited, and correct by construction: Babel applies the CLDR patterns and names of each language to a known
date. This is the usual task to introduce attention, here with many scripts.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from unmask.data.bitext.pairs import Bitext, Report
from unmask.errors import needs, unknown

# The scripts are Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic, Devanagari, Bengali, Tamil, Telugu, Thai,
# Hangul, Kana and Han. CLDR has Buddhist years for Thai and the solar calendar for Persian, but Babel applies the
# patterns of the Gregorian calendar everywhere, with the digits 0 to 9, so all numbers are those of the date.
LOCALES = (
    *("en_US", "en_GB", "de", "nl", "sv", "da", "nb", "is", "fr", "es", "it", "pt", "ro", "ca"),
    *("pl", "cs", "sk", "sl", "ru", "uk", "bg", "sr", "lt", "lv", "el", "fi", "et", "hu", "eu", "tr"),
    *("hy", "ka", "kk", "ar", "fa", "ur", "he", "hi", "bn", "ta", "te", "th", "vi", "id", "sw"),
    *("ko", "ja", "zh", "zh_Hant"),
)
SPLITS = ("train", "dev", "test")
SIZES = {  # sizes of the groups of numbers in `facts`
    "day of the week": 7,
    "day": 31,
    "month": 12,
    **{f"digit {i} of the year": 10 for i in range(1, 5)},
    "language": len(LOCALES),
    "pattern": 5,
}
FIRST, LAST = datetime.date(1583, 1, 1), datetime.date(2499, 12, 31)  # the calendar begins in October 1582

# Patterns that are unambiguous in all languages: the month is a word, the year is first, or dots separate day, month
# and year. 3/4/2005 may be in March or April, and 3.4.05 in any century.
_CLEAR = re.compile(r"(?=.*(?<!y)y(?!y)).*(MMM|^y\W|^y年|^dd?\. ?MM?\. ?y)")


@dataclass(frozen=True, slots=True)
class Written:
    """A written date: `text` is the `pattern` of `locale`, applied to `date`."""

    text: str
    date: datetime.date
    locale: str
    pattern: str


def pairs(count: int, *, seed: int = 0, split: str = "train") -> Bitext:
    """Pairs of written dates and ISO dates (2005-03-04); for the arguments and errors see `written`."""
    found = written(count, seed=seed, split=split)
    report = Report(f"dates ({split})", count)
    return Bitext([w.text for w in found], [w.date.isoformat() for w in found], report, _lines(count))


def vectors(count: int, *, seed: int = 0, split: str = "train") -> Bitext:
    """Pairs of vectors (`facts`) and written dates, for a model that generates texts from vectors; for the arguments
    and errors see `written`."""
    found = written(count, seed=seed, split=split)
    sources = [" ".join(map(str, facts(one))) for one in found]
    return Bitext(sources, [one.text for one in found], Report(f"date-vectors ({split})", count), _lines(count))


def facts(one: Written) -> list[int]:
    """A concatenation of one-hot groups with the sizes of SIZES, which describe a written date completely."""
    chosen = [one.date.weekday(), one.date.day - 1, one.date.month - 1, *map(int, f"{one.date.year:04}")]
    chosen += [LOCALES.index(one.locale), patterns(one.locale).index(one.pattern)]
    return [int(i == k) for size, k in zip(SIZES.values(), chosen, strict=True) for i in range(size)]


def written(count: int, *, seed: int = 0, split: str = "train") -> list[Written]:
    """`count` dates of a split, a pure function of (count, seed, split): language, pattern and day are drawn uniformly,
    the day from FIRST to LAST.

    A day belongs to the same split for all seeds (90 % train, 5 % dev, 5 % test), and no text has two meanings, so a
    text of one split is in no other. Raises UnmaskError for an unknown split, and without Babel.
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
    """The unambiguous CLDR patterns of a locale, among full, long, medium, short, and full with the short name of the
    weekday. Raises UnmaskError without Babel."""
    formats = _babel().Locale.parse(locale).date_formats
    usual = [formats[name].pattern for name in ("full", "long", "medium", "short")]
    brief = re.sub("EEEE|cccc", "EEE", usual[0])
    return tuple(pattern for pattern in dict.fromkeys([*usual, brief]) if _CLEAR.search(pattern))


def _written(locale: str, ordinal: int, share: float) -> Written:
    """The date in a pattern of the locale, which `share`, from 0 to 1, selects."""
    among = patterns(locale)
    date, pattern = datetime.date.fromordinal(ordinal), among[int(share * len(among))]
    return Written(_pattern(pattern).apply(date, _locale(locale)), date, locale, pattern)


def _days(split: str) -> np.ndarray:
    """[days] ordinals of the days of a split: a hash divides them into 20 parts, one for dev and one for test."""
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

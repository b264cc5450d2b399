"""Refusals: the status and the sentence of a request that the service does not answer."""

from __future__ import annotations

LONGEST = 600  # most characters of the sentence of a refusal


class Refusal(Exception):
    """A request that the service does not answer: a status, one plain sentence, headers."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def too_busy(status: int, sentence: str, seconds: int) -> Refusal:
    """A refusal (429, 503) with the seconds after which to try again."""
    return Refusal(status, sentence, retry_after=str(max(1, seconds)))


def clipped(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning and an ellipsis; on one line."""
    begin = " ".join(text[: 4 * most].split())  # not of the whole text, which may have megabytes
    return begin if len(begin) <= most and len(text) <= 4 * most else begin[: most - 1] + "…"

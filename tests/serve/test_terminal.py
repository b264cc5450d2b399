"""What texts and names of others hold for a terminal to obey is shown, not sent."""

from __future__ import annotations

import io

import pytest

from unmask.cli import main
from unmask.cli.terminal import coloured, harmless_streams
from unmask.errors import harmless

EVIL = "good \x1b]0;owned\x07 \x9b2J \u202eevil\r"
SHOWN = r"good \x1b]0;owned\x07 \x9b2J \u202eevil\r"


class Screen(io.StringIO):
    """A terminal, as far as anybody asks."""

    def isatty(self):
        return True


def obeyed(text):
    return [c for c in text if c not in "\t\n" and harmless(c) != c]


def test_what_is_obeyed_is_written_out_and_all_else_stays():
    assert harmless(EVIL) == SHOWN
    plain = "a\tb\nשלום \u200f é한👩‍👩‍👧 \xa0 \\x1b"
    assert harmless(plain) == plain


def test_files_and_pipes_get_texts_as_they_are(monkeypatch):
    for stream, wanted in ((io.StringIO(), EVIL), (Screen(), SHOWN)):
        monkeypatch.setattr("sys.stdout", stream)
        with harmless_streams():
            print(EVIL, end="")
            print("\x1b[1mours\x1b[0m", file=coloured(), end="")
        assert stream.getvalue() == wanted + "\x1b[1mours\x1b[0m"


def test_errors_are_harmless_wherever_they_go(monkeypatch):
    import sys

    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with harmless_streams():
        print(EVIL, end="", file=sys.stderr)
    assert (stream.getvalue(), sys.stderr) == (SHOWN, stream)


@pytest.mark.parametrize(
    ("name", "text"),
    [("tagger", f"people {EVIL}"), ("bert", f"the [MASK] {EVIL}"), ("reader", f"who talk\tpeople who talk {EVIL}")],
)
def test_predictions_are_shown_harmlessly(models, monkeypatch, tmp_path, name, text):
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    main(["predict", "--model", str(getattr(models, name)), text])
    assert screen.getvalue()
    assert obeyed(screen.getvalue()) == []


def test_the_service_shows_names_harmlessly(models, monkeypatch):
    from unmask.serve.http import server

    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr(server, "run", lambda app, host, port, begun: begun("http://address"))
    main(["serve", "--model", f"\x1b[2Jbert={models.bert}"])
    assert screen.getvalue() == "\\x1b[2Jbert at http://address (Ctrl-C to stop)\n"

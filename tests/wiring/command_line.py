"""The command line in this process, for tests of whole runs."""

from __future__ import annotations

from unmask.cli import main


def words(text: str) -> list[str]:
    return text.split()


def run_cli(capsys, *arguments: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of `unmask ARGUMENTS`."""
    status = 0
    try:
        main(list(arguments))
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err

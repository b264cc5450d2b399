"""Models by their names on the Hugging Face hub: downloaded once, then read from its cache like any other folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.errors import UnmaskError, needs

PREFIX = "hub:"
SAFE = ("*.json", "*.txt", "*.safetensors", "*.model", "*.spm")
"""The files to download. They contain no code."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def is_name(place: Path | str) -> bool:
    """Whether this is the name of a model on the hub: `hub:NAME`, or `owner/name` if neither of the paths `owner/name`
    and `owner` exists."""
    text = str(place)
    if text.startswith(PREFIX):
        return True
    return _NAME.fullmatch(text) is not None and not Path(text).exists() and not Path(text).parent.exists()


def name_of(folder: Path | str) -> str:
    """The name on the hub of a folder in its cache, `models--owner--name/snapshots/...`; "" for any other folder."""
    parts = Path(folder).parts[-3:]
    if len(parts) < 3 or parts[1] != "snapshots" or not parts[0].startswith("models--"):
        return ""
    return parts[0].removeprefix("models--").replace("--", "/")


def model_folder(place: Path | str) -> Path:
    """The folder itself, or the folder in the hub's cache for `owner/name`, `owner/name@revision` and `hub:NAME`.

    Downloads the files of SAFE that are not in the cache; without a network, it uses the cache. Raises UnmaskError if
    the package `huggingface_hub` is not installed, if the hub does not know the name, and if it does not answer.
    """
    if not is_name(place):
        return Path(place)
    name, _, revision = str(place).removeprefix(PREFIX).partition("@")
    missing = f"There is no model folder {place}"
    try:
        import huggingface_hub
    except ImportError:
        raise needs(f"{missing}, and a model of the Hugging Face hub needs huggingface_hub", "hub") from None
    with one_sentence(missing, revision, "the download from the hub failed"):
        return Path(huggingface_hub.snapshot_download(name, revision=revision or None, allow_patterns=list(SAFE)))


@contextmanager
def one_sentence(failed: str, revision: str, otherwise: str) -> Iterator[None]:
    """Turn an error of the hub's library into an UnmaskError.

    failed     what did not succeed, which begins the sentence
    revision   the revision of the model that was asked for; "" for the newest
    otherwise  the reason before the library's own words, for errors of other kinds
    """
    from huggingface_hub import errors

    try:
        yield
        return
    except UnmaskError:
        raise
    except errors.GatedRepoError:
        why = "the model of this name on the Hugging Face hub is gated: request access on its page, and log in with hf"
    except errors.RepositoryNotFoundError:
        why = "the Hugging Face hub has no model of this name, or the model is private: log in with hf"
    except errors.RevisionNotFoundError:
        why = f"the model of this name on the Hugging Face hub has no revision {revision}"
    except errors.LocalTokenNotFoundError:
        why = "the Hugging Face hub does not know you: log in with hf auth login"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "the Hugging Face hub does not answer, and its cache does not hold the model: give a folder, or connect"
    except Exception as error:  # the exceptions of its HTTP clients have no class in common
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            why = "the Hugging Face hub refuses it: log in with hf auth login, with a token that may write"
        else:
            why = f"{otherwise}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    raise UnmaskError(f"{failed}, and {why.rstrip('.')}.")

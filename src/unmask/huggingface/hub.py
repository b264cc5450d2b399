"""Models by their names on the Hugging Face hub: downloaded once, and then read from its cache as any other folder."""

from __future__ import annotations

import re
from pathlib import Path

from unmask.errors import UnmaskError, needs

PREFIX = "hub:"
SAFE = ("*.json", "*.txt", "*.safetensors", "*.model")
"""What is downloaded: files that hold no code."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def is_name(place: Path | str) -> bool:
    """Whether this is the name of a model on the hub: `hub:NAME`, or `owner/name` where there is neither such a folder
    nor one that is called as the owner."""
    text = str(place)
    if text.startswith(PREFIX):
        return True
    return _NAME.fullmatch(text) is not None and not Path(text).exists() and not Path(text).parent.exists()


def model_folder(place: Path | str) -> Path:
    """The folder itself, or that of the hub's cache for `owner/name`, `owner/name@revision` and `hub:NAME`.

    Of a model on the hub, the files of SAFE are downloaded where they are not in the cache; without a network, what
    is there is taken. Raises UnmaskError where the package `huggingface_hub` is not installed, and for a name that the
    hub does not know, or cannot be asked for.
    """
    if not is_name(place):
        return Path(place)
    name, _, revision = str(place).removeprefix(PREFIX).partition("@")
    missing = f"There is no model folder {place}"
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise needs(f"{missing}, and a model of the Hugging Face hub needs huggingface_hub", "hub") from None
    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision or None, allow_patterns=list(SAFE)))
    except errors.GatedRepoError:
        why = "the model of this name on the Hugging Face hub is given to those who ask for it there: log in with hf"
    except errors.RepositoryNotFoundError:
        why = "the Hugging Face hub has no model of this name, or none for those who are not logged in"
    except errors.RevisionNotFoundError:
        why = f"the model of this name on the Hugging Face hub has no revision {revision}"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "on the Hugging Face hub it cannot be had: the hub does not answer, and its cache does not hold the model"
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        why = f"the Hugging Face hub does not give it: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    raise UnmaskError(f"{missing}, and {why.rstrip('.')}.")

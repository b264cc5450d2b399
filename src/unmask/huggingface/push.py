"""Upload of a folder to the Hugging Face hub: the files of the model, without those of its training."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.config import bounded, regular
from unmask.errors import UnmaskError, nearest, needs, plural
from unmask.files import verify_manifest
from unmask.huggingface.card import CARD, is_unedited, renamed, with_metadata
from unmask.huggingface.config import require_model
from unmask.huggingface.hub import one_sentence
from unmask.huggingface.sentence_transformers import NORMALIZE, POOLING

if TYPE_CHECKING:
    from huggingface_hub import HfApi

VECTORS = "vectors.safetensors"  # word vectors, which a folder holds in place of a model
ENDINGS = frozenset({".json", ".safetensors", ".model", ".spm", ".onnx", ".data", ".gguf"})
"""Endings of files of a model, of its processor and of exports."""
NAMES = frozenset({CARD, "LICENSE", "LICENSE.md", "LICENSE.txt", "vocab.txt", "merges.txt", "words.txt"})
"""Files with other endings."""
INSIDE = frozenset({"onnx", "gguf", "generator", POOLING, NORMALIZE})
"""Folders that belong to a model."""
OF_TRAINING = {
    "checkpoints": "weights and optimizer state of earlier steps",
    "checkpoint": "the state of an unfinished run",
    "best": "the weights of the best evaluation, which the folder has itself",
    "seeds": "the runs of all seeds",
    "search": "the runs of a search",
    "labels": "labels of the data",
    "metrics.jsonl": "metrics of the training",
    "samples.jsonl": "texts of evaluations",
    "dev_predictions.jsonl": "dev rows with the answers of the model",
    "report.html": "the report, which shows rows of the data",
    "examples.json": "rows of the data",
    "tensorboard": "metrics of the training",
    "trackers.json": "addresses of the training in other programs",
    "backends.json": "times of this machine",
    **dict.fromkeys(
        ("search.json", "curve.json", "folds.json", "probe.json", "quickstart.json"), "results of other runs"
    ),
}
"""Files and folders of a run -> what they are. They are not uploaded."""

LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
    bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0
    eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research
    intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit
    mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openrail openrail++ osl-3.0 other pddl postgresql unknown
    unlicense wtfpl zlib
    """.split()  # noqa: SIM905 (as in unmask.huggingface.config)
)
"""Names of licenses that the hub accepts in a card: https://huggingface.co/docs/hub/repositories-licenses."""

UNITS = ("B", "kB", "MB", "GB")


@dataclass(frozen=True)
class Upload:
    """What is uploaded from a folder.

    files     path in the repository -> its bytes, a file or what replaces it
    left_out  path in the folder -> why it stays
    """

    folder: Path
    files: Mapping[str, Path | bytes]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Path in the repository -> its size in bytes."""
        return {name: len(one) if isinstance(one, bytes) else one.stat().st_size for name, one in self.files.items()}

    @property
    def command(self) -> str:
        """The command of its model card, without `unmask`; "" without one."""
        card = self.files.get(CARD, b"")
        found = re.search(r"^unmask (.+)$", card.decode() if isinstance(card, bytes) else "", re.MULTILINE)
        return found[1] if found else ""

    def summary(self, name: str) -> str:
        """The files with their sizes, and what stays."""
        sizes = self.sizes
        lines = [f"{name} gets {plural(len(sizes), 'file')}, {_shown(sum(sizes.values()))}:"]
        lines += [f"  {_shown(size):>9}  {path}" for path, size in sizes.items()]
        if "run.json" in sizes:
            lines.append("run.json holds the settings of the run, and names the files of its data with their folders.")
        if self.left_out:
            lines += ["Not uploaded:", *(f"  {path}: {why}" for path, why in self.left_out.items())]
        return "\n".join(lines)


def upload_of(folder: Path, name: str, metadata: Mapping[str, Any]) -> Upload:
    """What `push` uploads.

    name      of the repository, which the examples of the model card open
    metadata  further fields of the metadata of the card: license, language

    Raises UnmaskError for a folder without a model, a damaged one, a card that cannot be read, and one without metadata
    that gets some, and for a license that the hub does not know.
    """
    check_license(metadata.get("license"))
    if not (folder / VECTORS).is_file():
        require_model(folder)
    verify_manifest(folder)
    files: dict[str, Path | bytes] = {}
    left_out = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_dir() or any(part.startswith(".") for part in place.parts):
            continue
        if found := _stays(place):
            left_out[found[0]] = found[1]
        else:
            files[place.as_posix()] = regular(path)
    if (folder / CARD).is_file():
        text = _card(folder / CARD)
        text = renamed(text, folder.resolve().name, name) if is_unedited(folder) else text
        files[CARD] = (with_metadata(text, metadata) if metadata else text).encode()
    elif metadata:
        files[CARD] = with_metadata("---\n---\n", metadata).encode()
    return Upload(folder, files, left_out)


def check_license(name: str | None) -> None:
    """Raises UnmaskError for a license that the hub does not know, with the nearest one that it knows."""
    if name is None or name in LICENSES:
        return
    meant = nearest(name.lower().replace(" ", "-"), LICENSES)
    hint = f"; did you mean '{meant}'?" if meant else "."
    raise UnmaskError(
        f"The hub knows no license '{name}'{hint} For one that it does not list, give --license other, and put its "
        "text into LICENSE in the folder."
    )


def push(
    upload: Upload,
    name: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str | None = None,
    api: HfApi | None = None,
) -> str:
    """Upload, in one commit, and return the address of the model.

    name      `owner/name`, or `name` for the person who is logged in
    private   whether others cannot see the model; None: a new one is private, and an older one stays as it is
    revision  branch, which is made if it does not exist; None: the main one
    message   of the commit
    api       the client of the hub; None: that of the person who is logged in

    Raises UnmaskError if the package `huggingface_hub` is not installed, and if the hub refuses or does not answer.
    """
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError:
        raise needs("An upload to the Hugging Face hub needs huggingface_hub", "hub") from None
    client = api or HfApi(library_name="unmask")
    with one_sentence(f"{upload.folder} was not uploaded to {name}", revision or "", "the upload failed"):
        made = client.create_repo(name, private=private is not False, exist_ok=True)
        if private is not None:  # a repository that existed
            client.update_repo_settings(made.repo_id, private=private)
        if revision is not None:
            client.create_branch(made.repo_id, branch=revision, exist_ok=True)
        operations: Sequence[Any] = [
            CommitOperationAdd(
                path_in_repo=place, path_or_fileobj=content if isinstance(content, bytes) else str(content)
            )
            for place, content in upload.files.items()
        ]
        said = message or f"Upload {upload.folder.resolve().name} with unmask"
        client.create_commit(made.repo_id, operations, commit_message=said, revision=revision)
    return str(made)


def check_name(name: str) -> None:
    """Raises UnmaskError for a name that the hub does not allow. Needs `huggingface_hub`."""
    try:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id
    except ImportError:
        raise needs("An upload to the Hugging Face hub needs huggingface_hub", "hub") from None
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UnmaskError(
            f"'{name}' is not a valid name on the Hugging Face hub: write owner/name, of letters, digits, ., - and _."
        ) from None


def _card(path: Path) -> str:
    """The text of a model card. Raises UnmaskError if it is too long, or not in UTF-8."""
    try:
        return bounded(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{path} cannot be read: {error}.") from None


def _stays(place: Path) -> tuple[str, str] | None:
    """What is not uploaded, a file or the outermost folder around it, and why; None for a file of the model."""
    for one in (*reversed(place.parents[:-1]), place):
        known = one.name in INSIDE if one != place else one.suffix in ENDINGS or one.name in NAMES
        if why := OF_TRAINING.get(one.name, "" if known else "no part of a model"):
            return f"{one.as_posix()}{'' if one == place else '/'}", why
    return None


def _shown(size: float) -> str:
    """A size with its unit: 950 B, 1.2 kB, 440 MB."""
    unit = 0
    while size >= 1_000 and unit < len(UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"

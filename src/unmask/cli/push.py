"""The verb that uploads a folder to the Hugging Face hub: push."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.parser import add_verb


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs, "push", _push, "upload a model folder to the Hugging Face hub, without the files of its training"
    )
    sub.add_argument("folder", metavar="FOLDER", help="folder of a finished run, or any model folder")
    sub.add_argument("name", metavar="NAME", help="name on the hub: owner/name, or name, which the hub gives to you")
    seen = sub.add_mutually_exclusive_group()
    seen.add_argument("--private", action="store_true", help="only you see the model: what a new one is by default")
    seen.add_argument("--public", action="store_true", help="everybody sees the model, also one that was private")
    sub.add_argument("--revision", metavar="NAME", help="branch to write; a new one is made (default: main)")
    sub.add_argument("--message", metavar="TEXT", help="message of the commit")
    sub.add_argument("--license", metavar="NAME", help="license in the model card, by the hub's name: mit, apache-2.0")
    sub.add_argument("--language", metavar="CODE", help="language in the model card: en, de")
    sub.add_argument("--dry-run", action="store_true", help="list what would be uploaded, and stop")


def _push(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.huggingface.push import check_name, push, upload_of

    check_name(options.name)
    metadata = {name: value for name in ("license", "language") if (value := getattr(options, name))}
    upload = upload_of(Path(options.folder), options.name, metadata)
    print(upload.summary(options.name))
    if options.dry_run:
        return
    private = True if options.private else False if options.public else None
    address = push(upload, options.name, private=private, revision=options.revision, message=options.message)
    print(f"Uploaded: {address}")
    print(f"{options.name} is now the name of the model for --model, also on other machines.")

"""Docstrings of installed packages: read from their source files, in parallel, without importing or running them."""

from __future__ import annotations

import ast
import functools
import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask.data.text import layout, markup
from unmask.data.text.sentences import sentences
from unmask.errors import unknown

# Packages of every base installation, so that extras do not change the corpus: import name -> distribution.
PACKAGES = {
    "numpy": "numpy",
    "torch": "torch",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "sympy": "sympy",
    "mpmath": "mpmath",
    "networkx": "networkx",
    "huggingface_hub": "huggingface-hub",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "fsspec": "fsspec",
    "filelock": "filelock",
    "jinja2": "Jinja2",
    "joblib": "joblib",
    "rich": "rich",
}
EVERYTHING = ("python", *PACKAGES)
_STUBS = {"tokenizers", "safetensors"}  # documented in .pyi files; elsewhere stubs repeat the source
_MATHEMATICAL = {"sympy", "mpmath"}  # `x` is a formula in their documentation
_SKIPPED_FOLDERS = re.compile(
    r"__pycache__|_?tests?|.*_tests?|testing|_?vendor(ed)?|_?externals?|(site|dist)-packages|_?generated|benchmarks?|"
    r"idlelib|lib2to3|turtledemo|ensurepip|config-.*|lib-dynload|array_api_extra|array_api_compat|.*\.dist-info"
)
_SKIPPED_FILES = re.compile(r"(test_.*|.*_test|conftest)\.pyi?")
_DOCUMENTING_CALL = re.compile(r"docstr|newdoc|parse_kwargs|merge_dicts", re.IGNORECASE)
_LENGTH = 20_000  # characters after which a module continues in another document, at its next class or function
_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Passage:
    """A document as its authors wrote it: paragraphs of sentences, with the marks of `markup`.

    source  "package:path/to/module.py", with "#name" of the first class or function if the module is cut
    """

    source: str
    paragraphs: tuple[tuple[str, ...], ...]


@functools.cache
def passages(packages: tuple[str, ...] = EVERYTHING) -> tuple[Passage, ...]:
    """All passages of these packages, in a fixed order; "python" is the standard library. The result is cached.

    Raises UnmaskError for a package that is not one of `EVERYTHING`.
    """
    for package in packages:
        if package not in EVERYTHING:
            raise unknown("package of the embedded corpus", package, EVERYTHING)
    files = [file for package in packages for file in _files(package)]
    # Every worker takes each n-th of the files ordered by size, so that all finish at about the same time.
    largest_first = sorted(files, key=lambda file: (-os.path.getsize(file[1]), file))
    shares = [largest_first[worker::_WORKERS] for worker in range(_WORKERS)]
    found = {source: p for share in _in_parallel(shares) for source, p in share.items()}
    return tuple(passage for source, _ in files for passage in found[source])


def _files(package: str) -> Iterator[tuple[str, str]]:
    """(source, path) of every file of a package, in a fixed order; empty if the package is not installed."""
    if package == "python":
        folder = Path(sysconfig.get_path("stdlib"))
        yield from _walk(package, folder, folder)
    elif spec := importlib.util.find_spec(package):  # for a top-level name, this does not import the package
        for place in spec.submodule_search_locations or []:
            yield from _walk(package, Path(place), Path(place).parent)


def _walk(package: str, folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    suffixes = (".py", ".pyi") if package in _STUBS else (".py",)
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _SKIPPED_FOLDERS.fullmatch(name))
        for name in sorted(names):
            if name.endswith(suffixes) and not _SKIPPED_FILES.fullmatch(name):
                file = Path(path, name)
                yield f"{package}:{file.relative_to(root).as_posix()}", str(file)


def _in_parallel(shares: Sequence[Sequence[tuple[str, str]]]) -> Iterator[dict[str, list[Passage]]]:
    """Source -> passages, for each share, which a child process reads.

    The children are plain interpreters that read and write JSON: unlike `multiprocessing`, this neither forks a
    process that may have threads nor imports the caller's script again. If a child fails, this process reads its share.
    """
    for share, child in [(share, _child(share)) for share in shares]:
        output, _ = child.communicate()
        if child.returncode == 0:
            yield {
                source: [Passage(name, tuple(map(tuple, paragraphs))) for name, paragraphs in found]
                for source, found in json.loads(output).items()
            }
        else:
            yield {source: read(source, path) for source, path in share}


def _child(share: Sequence[tuple[str, str]]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as files:
        files.write(json.dumps(share).encode())
        files.seek(0)
        command = [sys.executable, "-P", "-m", "unmask.data.text.docstrings"]
        return subprocess.Popen(command, stdin=files, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _main() -> None:
    """Run as a child: read [(source, path)] from standard input, and write {source: [(name, paragraphs)]} to standard
    output, both as JSON."""
    gc.disable()  # syntax trees have many objects and no cycles
    found = {
        source: [(passage.source, passage.paragraphs) for passage in read(source, path)]
        for source, path in json.load(sys.stdin)
    }
    json.dump(found, sys.stdout)


def read(source: str, path: str) -> list[Passage]:
    """The passages of one source file; empty if it cannot be parsed."""
    try:
        code = Path(path).read_bytes()
        if b'"""' not in code and b"'''" not in code and b"topics" not in code:  # saves half of the time
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if source.endswith("pydoc_data/topics.py"):
        return list(_topics(source, tree))
    return list(_documents(source, _units(tree)))


def _topics(source: str, tree: ast.Module) -> Iterator[Passage]:
    """The language reference of `help()`, one passage for each topic; it is plain text with quoted code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name, text = _literal(key), _literal(value)
                if name and text:
                    yield from _documents(source, [(name, [re.sub(r'"([^"\s][^"]*)"', r"``\1``", text)])], named=True)


def _documents(source: str, units: Iterable[tuple[str, list[str]]], named: bool = False) -> Iterator[Passage]:
    """Join units of documentation (name, docstrings) into documents of about _LENGTH characters."""
    held: list[tuple[str, ...]] = []
    title, length, package = source, 0, source.partition(":")[0]
    for name, docstrings in units:
        prose = [p for docstring in docstrings for p in _prose(docstring, package)]
        if held and length >= _LENGTH:
            yield Passage(title, tuple(held))
            held, length, title = [], 0, f"{source}#{name}"
        if named:
            title = f"{source}#{name}"
        held.extend(prose)
        length += sum(len(sentence) for paragraph in prose for sentence in paragraph)
    if held:
        yield Passage(title, tuple(held))


def _prose(docstring: str, package: str) -> Iterator[tuple[str, ...]]:
    """Paragraphs of marked sentences that read as English."""
    for paragraph in layout.paragraphs(docstring):
        marked = markup.inline(paragraph, backticks_are_formulas=package in _MATHEMATICAL)
        kept = tuple(markup.prose(marked, sentences))
        if kept:
            yield kept


def _units(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """(name, docstrings) of the module itself and then of each of its classes, functions and documented objects."""
    for node in tree.body:
        name = getattr(node, "name", f"line-{node.lineno}")
        docstrings = list(_docstrings(node))
        if docstrings:
            yield name, docstrings


def _docstrings(statement: ast.AST) -> Iterator[str]:
    """Docstrings in or below a statement, in the order of the source, those in string literals included."""
    if isinstance(statement, ast.Expr | ast.Assign):
        value = statement.value
        text = _literal(value)
        if text and isinstance(statement, ast.Expr):
            yield text  # a docstring, or a string below an attribute
        elif (isinstance(value, ast.Call) and _DOCUMENTING_CALL.search(_name(value.func))) or (
            isinstance(statement, ast.Assign) and any("doc" in _name(target).lower() for target in statement.targets)
        ):
            yield from _literals(value)
    for block in ("body", "handlers", "orelse", "finalbody"):
        for inner in getattr(statement, block, ()):
            yield from _docstrings(inner)


def _name(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return getattr(node, "attr", None) or getattr(node, "id", None) or ""


def _literals(node: ast.AST) -> Iterator[str]:
    text = _literal(node)
    if text is None:
        for child in ast.iter_child_nodes(node):
            yield from _literals(child)
    elif "\n" in text:
        yield text


def _literal(node: ast.AST | None) -> str | None:
    """The text of a string literal, of a sum of literals, or of a literal with `.format` (fields stay unformatted)."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left), _literal(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _literal(node.func.value)
    return None


if __name__ == "__main__":
    _main()

"""What the checks install is pinned, whole, and known by its checksum; what is said of holes is what was asked."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import unmask

ROOT = Path(__file__).resolve().parents[2]
BY_DEVICE = {"torch"}  # comes in builds of their own, which no one checksum fits


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return {normal(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("file", ["requirements/ci.txt", "requirements/tools.txt", "requirements/site.txt"])
def test_every_package_has_its_checksums(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    blocks = [block for block in re.split(r"(?m)^(?=[^\s#])", text) if "==" in block]
    assert len(blocks) == len(pinned(file)) > 20
    assert not re.findall(r"(?m)^[\w.-]+ *@.*", text), "a path or an address has no checksum"
    assert not [block.split()[0] for block in blocks if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", block)]


def test_checksums_are_of_the_versions_that_are_pinned():
    constraints = pinned("constraints.txt")
    other = {
        name: version for name, version in pinned("requirements/ci.txt").items() if constraints.get(name) != version
    }
    assert not other, f"run `make lock`: {other}"


def test_everything_that_the_checks_ask_for_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = {
        normal(re.match(r"[\w.-]+", one)[0]) for one in [*project["dependencies"], *extras["test"], *extras["dev"]]
    }
    assert asked - {"unmask"} - BY_DEVICE <= pinned("requirements/ci.txt").keys()
    assert pinned("constraints.txt").keys() >= BY_DEVICE


def test_a_release_has_one_version_and_one_torch():
    def found(file: str, pattern: str) -> str:
        return re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)[1]

    assert found("CITATION.cff", r"^version: (\S+)$") == unmask.__version__
    assert found("CHANGELOG.md", r"^## \[(\d[\d.]+)\]") == unmask.__version__
    dates = found("CITATION.cff", r"^date-released: (\S+)$"), found("CHANGELOG.md", r"^## \[\d[\d.]+\] - (\S+)$")
    assert dates[0] == dates[1]
    torch = pinned("constraints.txt")["torch"]
    for file in ("Makefile", "Containerfile"):
        assert set(re.findall(r"\btorch==([\d.]+)", (ROOT / file).read_text(encoding="utf-8"))) == {torch}


def test_what_is_missing_is_named_by_its_extra():
    """One function says `pip install`, and knows the extras of the project alone."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named, others = {}, []
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [
            node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "needs"
        ]
        named |= {(path.name, call.lineno): call.args[1].value for call in calls}
        raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        others += [f"{path.name}:{node.lineno}" for node in raised if "unmask[" in ast.unparse(node)]
    assert len(named) > 12
    assert set(named.values()) <= extras.keys(), named
    assert not others, f"raise unmask.errors.needs: {others}"


def test_the_lowest_versions_are_read_off():
    lowest = script("minimal").lowest
    assert lowest(["b>=1.2", "a", "torch>=2", "b>=1.2", "c[d,e]>=3"]) == ["a", "b==1.2", "c[d,e]==3"]
    with pytest.raises(ValueError, match="two bounds"):
        lowest(["b>=1.2", "b>=1.3"])
    with pytest.raises(ValueError, match="not of the form"):
        lowest(["b~=1.2"])
    script("minimal").main()


def test_silence_is_not_safety():
    told = script("audit").told
    sound = {"name": "a", "version": "1", "vulns": []}
    holed = {"name": "b", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["2.1"]}]}
    silent = {"name": "c", "skip_reason": "not found"}
    assert told([silent]) == (
        ["audit: the service that answers here knows none of 1 packages; nothing was checked."],
        0,
    )
    assert told([sound, silent]) == (["audit: 1 of 2 packages looked up, 0 known holes."], 0)
    lines, status = told([sound, holed])
    assert status == 1
    assert lines[0] == "audit: b 2: X-1, mended in 2.1"

"""The rules of the house, read off the syntax tree of every file; each rule is also shown code that breaks it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "unmask"
LINES, ARGUMENTS = 400, 10
PAGE = 200  # lines of a file in which a system is written down
PAGES = ("models/", "runs/word_vectors/kernel.py")

# Room -> rooms it may know besides itself ("Who may know whom" in docs/architecture.md). A file that stands alone
# in src/unmask is a room too; `data.text.tokenizer` is that one file of a room.
GROUND = {"errors", "types", "places", "config", "files"}
LAYERS = GROUND | {"kernels"}  # what layers, data and training may know
LEARNED = LAYERS | {"nn", "models"}
ANSWERING = LEARNED | {"objectives", "huggingface", "data.text.tokenizer"}
EVERYTHING = ANSWERING | {"generate", "metrics", "tasks", "data", "train", "serve", "visualize", "page"}
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors", "places"},
    "places": {"errors"},
    "config": {"errors", "types"},
    "files": {"errors", "types", "config"},
    "kernels": {"errors"},
    "nn": LAYERS,
    "data": LAYERS,
    "train": LAYERS,
    "models": LAYERS | {"nn"},
    "objectives": LEARNED | {"data", "generate"},
    "generate": LEARNED,
    "huggingface": LEARNED
    | {
        "data.processor",
        "data.text.tokenizer",
        "data.text.sentence_tokenizer",
        "data.bitext.numbers",
        "data.pictures.captions",
        "data.pictures.processor",
        "data.recordings.processor",
        "data.signals.processor",
        "data.recordings.characters",
    },
    "metrics": GROUND,
    "tasks": ANSWERING | {"metrics", "data", "generate"},
    "visualize": ANSWERING | {"generate", "data", "train.metrics"},
    "serve": ANSWERING | {"generate", "tasks", "data", "metrics", "visualize"},
    "runs": EVERYTHING,
    "cli": EVERYTHING | {"runs"},
    "__init__": EVERYTHING | {"runs"},
    "__main__": {"cli"},
}


def words(text: str) -> list[str]:
    return text.split()


READ_AS_CODE = words("""
    pickle _pickle cPickle dill cloudpickle joblib marshal shelve pandas.read_pickle
    torch.load torch.jit.load torch.hub torch.serialization torch.package
    yaml.load yaml.unsafe_load yaml.full_load eval exec builtins.eval builtins.exec
""")
RUN_AS_CODE = words("torch._inductor.aoti_load_package torch._inductor.package")
MAY_RUN = {"serve/compiled.py"}  # a package that the user named
ENVIRONMENT = words("os.environ os.environb os.getenv os.putenv os.unsetenv")
MAY_READ_ENVIRONMENT = {"cli/process.py", "cli/training.py", "train/distributed.py"}
SEEDS = words("""
    torch.manual_seed torch.seed torch.set_rng_state torch.random torch.cuda.manual_seed torch.cuda.manual_seed_all
    torch.cuda.seed torch.cuda.seed_all torch.cuda.set_rng_state torch.cuda.set_rng_state_all
""")
# Dropout draws from torch's own stream and has no other door: it is seeded by those who train, and restored on resume.
MAY_SEED = {"train/trainer.py", "kernels/devices.py", "runs/finetuning/run.py"}
OWN_STREAM = {"Generator", "default_rng", "SeedSequence", "BitGenerator", "PCG64", "PCG64DXSM", "Philox", "SFC64"}
TORCH_DRAWS = words("rand randn randint randperm normal bernoulli multinomial poisson")
METHOD_DRAWS = words("bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_")
INIT_DRAWS = words("trunc_normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_")
OF_PROCESSORS = words("""
    torch.backends torch.cuda torch.mps torch.xpu torch.cpu torch.version.cuda torch.ops.mkldnn torch.ops.aten
    torch.autocast torch.is_autocast_enabled torch.get_autocast_dtype torch.amp
""")
ASKED = set(
    words("""
    is_cuda is_cpu is_mps is_xpu abilities has_matrix_unit computes_bf16 imitates_bf16 library_has_bf16 has_kernel
    get_device_capability get_device_properties
""")
)
NUMBERS = set(words("torch.bfloat16 torch.float16 torch.half torch.float32 torch.float torch.float64 torch.double"))
HEAVY = {"sklearn", "scipy", "pyarrow", "rich", "matplotlib", "datasets", "tensorboard", "zstandard", "numba"}
HEAVY |= {"onnx", "onnxruntime", "onnxscript", "huggingface_hub", "wandb", "mlflow", "trackio", "spacy", "IPython"}
HEAVY |= {"datatrove"}
OF_A_LIBRARY = {"runs/text_estimators.py": "sklearn", "serve/spacy_component.py": "spacy"}
OF_A_LIBRARY |= {f"data/text/cleaning/{name}.py": "datatrove" for name in ("steps", "executors")}
"""Files whose classes extend those of a library: they are imported by name only, by users of the library."""
FOREIGN = {"transformers", "sentence_transformers", "peft", "accelerate", "ctranslate2"}


@dataclass(frozen=True)
class Import:
    """One name that a file imports: `module` in full, at `line`, and when: at the start or on demand."""

    module: str
    line: int
    lazy: bool  # inside a function
    typing: bool  # under `if TYPE_CHECKING`


@dataclass(frozen=True)
class Source:
    """A parsed file of src/unmask; `path` is relative to that folder."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def dotted(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        return self.dotted.split(".")[0]

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, lazy=False, typing=False))

    def _imports(self, node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield Import(name.name, child.lineno, lazy, typing)
            elif isinstance(child, ast.ImportFrom):
                for name in child.names:
                    yield Import(f"{self._base(child)}.{name.name}".strip("."), child.lineno, lazy, typing)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for part in child.body:
                    yield from self._imports(ast.Module([part], []), lazy=lazy, typing=True)
                for part in child.orelse:
                    yield from self._imports(ast.Module([part], []), lazy=lazy, typing=typing)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from self._imports(child, lazy=lazy or inside, typing=typing)

    def _base(self, node: ast.ImportFrom) -> str:
        """The module that `from ... import` names, relative ones in full."""
        if not node.level:
            return node.module or ""
        package = ["unmask", *Path(self.path).parent.parts]
        return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])

    @cached_property
    def packages(self) -> set[str]:
        """First names of what the file imports."""
        return {found.module.split(".")[0] for found in self.imports}

    @cached_property
    def names(self) -> dict[str, str]:
        """Local name -> what it stands for in full, from every import of the file."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    names[name.asname or name.name.split(".")[0]] = (
                        name.name if name.asname else name.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    names[name.asname or name.name] = f"{self._base(node)}.{name.name}".strip(".")
        return names

    def full(self, node: ast.AST) -> str | None:
        """`np.random.seed` -> "numpy.random.seed"; None for what is not a plain chain of names."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.full(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return None

    @cached_property
    def uses(self) -> list[tuple[str, int]]:
        """(full name, line) of every chain of names and every import."""
        chains = [(self.full(n), n.lineno) for n in ast.walk(self.tree) if isinstance(n, ast.Name | ast.Attribute)]
        return [(name, line) for name, line in chains if name] + [(i.module, i.line) for i in self.imports]

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]


@cache
def sources() -> list[Source]:
    found = [Source(str(p.relative_to(SOURCE)), p.read_text(encoding="utf-8")) for p in sorted(SOURCE.rglob("*.py"))]
    assert len(found) > 20, f"the rules found next to nothing to judge in {SOURCE}"
    return found


def under(name: str, prefixes: list[str] | tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


# ------------------------------------------------------------------------------------------------ the rules
# Each takes a Source and yields (line, what is wrong).

Complaints = Iterator[tuple[int, str]]


def knows_only_its_ground(source: Source) -> Complaints:
    allowed = MAY_KNOW.get(source.room)
    if allowed is None:
        yield 1, f"the room '{source.room}' has no place in docs/architecture.md"
        return
    for found in source.imports:
        root, _, inside = found.module.partition(".")
        if root != "unmask" or found.typing:
            continue
        room = inside.split(".")[0]
        of_package = room in ("", "UnmaskError", "__version__", "load", "Predictor")
        known = room == source.room or any(inside == a or inside.startswith(a + ".") for a in allowed)
        if not known and not (of_package and source.room in ("cli", "__init__")):
            yield found.line, f"'{source.room}' may not know '{inside or 'unmask'}'"


def is_short(source: Source) -> Complaints:
    lines, most = (
        source.text.count("\n"),
        PAGE if source.path.startswith(PAGES) else LINES,
    )
    if lines > most:
        yield lines, f"{lines} lines, more than {most}"


def constructs_with_few_arguments(source: Source) -> Complaints:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__new__"):
            a = node.args
            count = len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) - 1
            if count > ARGUMENTS:
                yield node.lineno, f"a constructor with {count} arguments, more than {ARGUMENTS}"


def has_a_docstring(source: Source) -> Complaints:
    if not (ast.get_docstring(source.tree) or "").strip():
        yield 1, "the module has no docstring"


def reads_nothing_as_code(source: Source) -> Complaints:
    for name, line in source.uses:
        if under(name, READ_AS_CODE):
            yield line, f"{name} can run what it reads"
        if under(name, RUN_AS_CODE) and source.path not in MAY_RUN:
            yield line, f"{name} runs what it reads; only {', '.join(MAY_RUN)} may, by a name that the user gave"
    for call in source.calls:
        for keyword in call.keywords:
            constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "allow_pickle" and constant is not False:
                yield call.lineno, "allow_pickle must be False"
            if keyword.arg == "trust_remote_code" and constant is not False:
                yield call.lineno, "trust_remote_code must be False"


def reads_no_environment(source: Source) -> Complaints:
    if source.path not in MAY_READ_ENVIRONMENT:
        for name, line in source.uses:
            if under(name, ENVIRONMENT):
                yield line, f"{name}: only {' and '.join(sorted(MAY_READ_ENVIRONMENT))} may know the environment"


def leaves_global_randomness_alone(source: Source) -> Complaints:
    for name, line in source.uses:
        parts = name.split(".")
        if parts[:2] == ["numpy", "random"] and len(parts) > 2 and parts[2] not in OWN_STREAM:
            yield line, f"{name} draws from NumPy's global state; pass a Generator"
        if parts[0] == "random" and "random" in source.packages and name not in ("random", "random.Random"):
            yield line, f"{name} draws from Python's global state; pass a Generator"
        if under(name, SEEDS) and source.path not in MAY_SEED:
            yield line, f"{name} changes torch's global state; pass a Generator"
    for call in source.calls:
        if any(keyword.arg == "generator" for keyword in call.keywords):
            continue
        name = source.full(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        torch_draw = name.startswith("torch.") and name.count(".") == 1 and name.split(".")[1] in TORCH_DRAWS
        init_draw = name.startswith("torch.nn.init.") and method in (*METHOD_DRAWS, *INIT_DRAWS)
        if torch_draw or init_draw or (method in METHOD_DRAWS and not name.startswith("torch.nn.init.")):
            yield call.lineno, f"{name or method} without generator= draws from torch's global state"


def imports_heavy_things_late(source: Source) -> Complaints:
    for found in source.imports:
        root = found.module.split(".")[0]
        if root in FOREIGN:
            yield found.line, f"{root} is a reference for tests and benchmarks, not a part of this"
        elif root in HEAVY and not found.lazy and not found.typing and root != OF_A_LIBRARY.get(source.path):
            yield found.line, f"import {root} inside the function that needs it"


def asks_no_processor(source: Source) -> Complaints:
    """Which device, instruction set or number format is at hand is asked in `kernels` alone."""
    if source.room == "kernels":
        return
    for name, line in source.uses:
        if under(name, OF_PROCESSORS) or name.split(".")[-1] in ASKED:
            yield line, f"{name} asks what the processor is; let a function of kernels decide"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in ASKED:
            yield node.lineno, f".{node.attr} asks what the processor is; let a function of kernels decide"
        if isinstance(node, ast.Attribute) and node.attr == "type" and _is_a_device(node.value):
            yield node.lineno, "the type of a device is asked in kernels alone"
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [part for side in sides for part in ([*side.elts] if isinstance(side, ast.Tuple) else [side])]
            if any(source.full(part) in NUMBERS for part in parts):
                yield node.lineno, "the number format of a tensor is asked in kernels alone"


def _is_a_device(node: ast.AST) -> bool:
    """`device`, `x.device`, `self.device`, `torch.device(…)`, `chosen_device`."""
    name = node.func if isinstance(node, ast.Call) else node
    last = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    return last.endswith("device")


def leaves_ranks_to_one_file(source: Source) -> Complaints:
    if source.path != "train/distributed.py":
        for name, line in source.uses:
            if under(name, ["torch.distributed"]):
                yield line, "only train/distributed.py knows ranks"


def asks_no_model_for_its_kind(source: Source) -> Complaints:
    """A model is asked for what all models have. A module of `huggingface` is of one system and knows its config."""
    if source.room in ("models", "huggingface"):
        return
    for call in source.calls:
        if source.full(call.func) in ("isinstance", "issubclass") and len(call.args) == 2:
            for node in ast.walk(call.args[1]):
                name = source.full(node) or ""
                if name.startswith("unmask.models."):
                    yield call.lineno, f"asks a model whether it is a {name.rpartition('.')[2]}; ask for what is needed"


RULES = [
    asks_no_model_for_its_kind,
    knows_only_its_ground,
    is_short,
    constructs_with_few_arguments,
    has_a_docstring,
    reads_nothing_as_code,
    reads_no_environment,
    leaves_global_randomness_alone,
    imports_heavy_things_late,
    leaves_ranks_to_one_file,
    asks_no_processor,
]
EVERYWHERE = [is_short, constructs_with_few_arguments, has_a_docstring, reads_nothing_as_code]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_source_file(rule):
    broken = {f"src/unmask/{source.path}:{line}: {what}" for source in sources() for line, what in rule(source)}
    assert not broken, "\n" + "\n".join(sorted(broken))


@pytest.mark.parametrize("folder", ["benchmarks", "reliability"])
@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_every_file_outside_the_package(rule, folder):
    found = [Source(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in (ROOT / folder).rglob("*.py")]
    broken = {f"{source.path}:{line}: {what}" for source in found for line, what in rule(source)}
    assert len(found) > 10
    assert not broken, "\n" + "\n".join(sorted(broken))


# A rule that finds nothing in bad code guards nothing.
BROKEN = [
    (knows_only_its_ground, "nn/bad.py", "from unmask.models import bert"),
    (knows_only_its_ground, "models/bad.py", "def f():\n    from unmask.train import trainer"),
    (knows_only_its_ground, "models/bad.py", "from ..data import text"),
    (knows_only_its_ground, "data/bad.py", "import unmask.objectives.objective"),
    (knows_only_its_ground, "data/bad.py", "from unmask import models"),
    (knows_only_its_ground, "train/bad.py", "from unmask import load"),
    (knows_only_its_ground, "train/bad.py", "from unmask import data"),
    (knows_only_its_ground, "huggingface/folder.py", "from unmask.data import corpus"),
    (knows_only_its_ground, "pretrain.py", "from unmask.cli import main"),
    (knows_only_its_ground, "attic/bad.py", "x = 1"),
    (asks_no_model_for_its_kind, "pretrain.py", "from unmask.models.t5 import T5\nisinstance(config, T5)"),
    (asks_no_model_for_its_kind, "serve/bad.py", "from unmask import models\nisinstance(x, int | models.Bert)"),
    (is_short, "nn/bad.py", "x = 1\n" * 401),
    (is_short, "models/bert.py", "x = 1\n" * 201),
    (is_short, "models/new.py", "x = 1\n" * 201),
    (
        constructs_with_few_arguments,
        "nn/bad.py",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, h, *, i, j, k): ...",
    ),
    (has_a_docstring, "nn/bad.py", "x = 1"),
    (has_a_docstring, "nn/__init__.py", ""),
    (reads_nothing_as_code, "nn/bad.py", "import pickle as p"),
    (reads_nothing_as_code, "nn/bad.py", "from torch import load"),
    (reads_nothing_as_code, "nn/bad.py", "import torch as t\nt.load('x')"),
    (reads_nothing_as_code, "nn/bad.py", "eval('1')"),
    (reads_nothing_as_code, "serve/bad.py", "import torch\ntorch._inductor.aoti_load_package('x')"),
    (reads_nothing_as_code, "nn/bad.py", "import numpy as np\nnp.load('x', allow_pickle=True)"),
    (reads_nothing_as_code, "nn/bad.py", "import numpy as np\nnp.load('x', allow_pickle=flag)"),
    (reads_nothing_as_code, "nn/bad.py", "import yaml\nyaml.load('x')"),
    (reads_no_environment, "nn/bad.py", "import os\nos.environ['A']"),
    (reads_no_environment, "pretrain.py", "from os import getenv"),
    (leaves_global_randomness_alone, "nn/bad.py", "import numpy as np\nnp.random.seed(0)"),
    (leaves_global_randomness_alone, "nn/bad.py", "from numpy.random import rand"),
    (leaves_global_randomness_alone, "nn/bad.py", "import random\nrandom.shuffle([])"),
    (leaves_global_randomness_alone, "nn/bad.py", "from random import shuffle"),
    (leaves_global_randomness_alone, "models/bad.py", "import torch\ntorch.manual_seed(0)"),
    (leaves_global_randomness_alone, "models/bad.py", "import torch\ntorch.randn(3)"),
    (leaves_global_randomness_alone, "models/bad.py", "from torch import nn\nnn.init.normal_(w)"),
    (leaves_global_randomness_alone, "models/bad.py", "w.data.uniform_(0, 1)"),
    (imports_heavy_things_late, "data/bad.py", "import pyarrow.parquet as pq"),
    (imports_heavy_things_late, "data/bad.py", "class A:\n    from rich import print"),
    (imports_heavy_things_late, "data/bad.py", "def f():\n    import transformers"),
    (knows_only_its_ground, "pretrain.py", "from unmask import cost"),
    (reads_no_environment, "bench/common.py", "import os\nos.environ"),
    (leaves_ranks_to_one_file, "train/bad.py", "import torch.distributed as dist"),
    (asks_no_processor, "nn/bad.py", "if x.device.type == 'cpu': y()"),
    (asks_no_processor, "nn/bad.py", "kind = torch.device(device).type"),
    (asks_no_processor, "nn/bad.py", "import torch\ntorch.backends.mkldnn.is_available()"),
    (asks_no_processor, "nn/bad.py", "from torch.backends import cuda"),
    (asks_no_processor, "nn/bad.py", "import torch\ntorch.ops.mkldnn._linear_pointwise(x, w, b, 'none', [], '')"),
    (asks_no_processor, "train/bad.py", "if x.is_cuda: y()"),
    (asks_no_processor, "train/bad.py", "from unmask.kernels.processor import abilities"),
    (asks_no_processor, "cli/bad.py", "from unmask.kernels import processor\nprocessor.imitates_bf16()"),
    (asks_no_processor, "nn/bad.py", "import torch\nif x.dtype in (torch.bfloat16, torch.float16): y()"),
    (asks_no_processor, "nn/bad.py", "import torch\nif x.dtype is torch.float32: y()"),
    (asks_no_processor, "tasks/bad.py", "import torch\nwith torch.autocast(kind, enabled=False): y()"),
]
ALLOWED = [
    (
        knows_only_its_ground,
        "models/good.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import unmask.data",
    ),
    (knows_only_its_ground, "huggingface/folder.py", "from unmask.data.text.tokenizer import Tokenizer"),
    (knows_only_its_ground, "models/good.py", "from .model import Model\nfrom ..nn import Block\nimport torch"),
    (is_short, "nn/good.py", "x = 1\n" * 400),
    (
        constructs_with_few_arguments,
        "nn/good.py",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, *, h, i, j): ...",
    ),
    (reads_nothing_as_code, "nn/good.py", "model.eval()\nimport re\nre.compile('x')\nnp.load('x', allow_pickle=False)"),
    (reads_no_environment, "cli/training.py", "import os\nos.environ['A']"),
    (leaves_global_randomness_alone, "nn/good.py", "import numpy as np\nrng = np.random.default_rng(0)\nrng.random(3)"),
    (leaves_global_randomness_alone, "nn/good.py", "random = rng.random(3)\nrandom.sum()"),
    (leaves_global_randomness_alone, "nn/good.py", "import torch\ntorch.randn(3, generator=g)\nw.normal_(generator=g)"),
    (leaves_global_randomness_alone, "train/trainer.py", "import torch\ntorch.manual_seed(0)"),
    (imports_heavy_things_late, "data/good.py", "def f():\n    import pyarrow"),
    (imports_heavy_things_late, "serve/spacy_component.py", "from spacy.tokens import Doc"),
    (asks_no_processor, "kernels/good.py", "import torch\nif x.device.type == 'cpu': torch.backends.mkldnn"),
    (asks_no_processor, "nn/good.py", "import torch\nif x.dtype is torch.bool: y(x.to(torch.float32), x.type)"),
    (asks_no_processor, "train/good.py", "from unmask.kernels.processor import settle\nsettle(precision, device)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_rule_sees_the_file_that_breaks_it(rule, path, text):
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_a_rule_lets_the_rest_be(rule, path, text):
    assert not list(rule(Source(path, text)))


# ------------------------------------------------------------------------------------------------ rooms and floors

ROOMS, LOOSE, FLOORS = 15, 5, 10


def known_rooms() -> dict[str, set[str]]:
    """Room -> the rooms that its files import."""
    found: dict[str, set[str]] = {}
    for source in sources():
        known = found.setdefault(source.room, set())
        modules = [one.module for one in source.imports if one.module.startswith("unmask.") and not one.typing]
        known |= {module.split(".")[1] for module in modules} - {source.room}
    return found


def floor_of(room: str, known: dict[str, set[str]], above: tuple[str, ...] = ()) -> int:
    """How many rooms stand one on the other below a room, itself included; the ground is one floor."""
    assert room not in above, f"rooms that import one another: {' -> '.join((*above, room))}"
    if room in GROUND:
        return 1
    return 1 + max((floor_of(other, known, (*above, room)) for other in known.get(room, ())), default=0)


def test_the_house_has_few_rooms_and_floors_and_no_circle():
    rooms = [path for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    loose = [path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")]
    assert len(rooms) <= ROOMS
    assert len(loose) <= LOOSE
    known = {room: others for room, others in known_rooms().items() if not room.startswith("__")}
    floors = {room: floor_of(room, known) for room in known}
    assert max(floors.values()) <= FLOORS, floors
    with pytest.raises(AssertionError, match="nn -> models -> nn"):
        floor_of("nn", {"nn": {"models"}, "models": {"nn"}})


# ------------------------------------------------------------------------------------------------ start-up


def call(*arguments: str) -> str:
    """Code that runs the command line and outlives its exit."""
    return f"import contextlib, unmask.cli\nwith contextlib.suppress(SystemExit): unmask.cli.main({list(arguments)})"


@pytest.mark.parametrize("code", ["import unmask", "import unmask.cli", call("--help"), call("pretrain", "--help")])
def test_start_up_imports_nothing_heavy(code):
    heavy = HEAVY | FOREIGN | {"torch", "numpy", "tokenizers", "safetensors"}
    judge = f"\nimport sys\nsys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code + judge], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "", f"imported {done.stderr}"


def test_what_answers_loads_no_compiler_and_no_scipy():
    """Each of them takes a second."""
    judge = (
        "import sys, unmask.serve.opened\nsys.exit(str({'torch._dynamo', 'scipy', 'sklearn'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", judge], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "", f"imported {done.stderr}"


# ------------------------------------------------------------------------------------------------ documents


def make_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def named_targets(document: str) -> set[str]:
    """What a document tells its reader to `make`: in code only, for prose makes sure of other things."""
    code = re.findall(r"```.*?```|`[^`\n]+`", document, re.DOTALL)
    return {target for part in code for target in re.findall(r"(?:^|[`\n;&$ ])make ([a-z][\w-]*)", part)}


def tree_paths(document: str) -> list[str]:
    """Paths in the file trees of a document: fenced blocks that begin with a folder, its entries indented below it.

    An entry is a name (a folder ends in `/`), or several on one line; what follows two spaces is its description.
    """
    paths: list[str] = []
    for block in re.findall(r"```\w*\n(.*?)```", document, re.DOTALL):
        if not re.match(r"\S*/(\s|$)", block):
            continue
        parents: list[tuple[int, str]] = []
        for line in block.splitlines():
            bare = re.sub(r"[│├└─|`]", " ", line)
            if not bare.strip():
                continue
            indent = len(bare) - len(bare.lstrip())
            parents = [(depth, folder) for depth, folder in parents if depth < indent]
            where = parents[-1][1] if parents else ""
            names = re.match(r"\s*((?:[\w.-]+(?:/|\.\w+)+ ?)+)(?=\s|$)", bare)
            if names is None:
                continue
            for name in names[1].split():
                paths.append(where + name)
                if name.endswith("/"):
                    parents.append((indent, where + name))
                    where += name
    return paths


def test_the_readers_of_documents_read():
    assert named_targets("Run `make test`, or\n```\n$ make lint ARGS=x\n```\nto make sure.") == {"test", "lint"}
    assert make_targets("a: b\n\tc\nPYTHON ?= x\nlint:\n.venv/x: y\n") == {"a", "lint"}
    plain = "```\nsrc/unmask/\n  nn/\n    a.py b.py   parts\n  cli.py    the command\n```"
    assert tree_paths(plain) == [
        "src/unmask/",
        "src/unmask/nn/",
        "src/unmask/nn/a.py",
        "src/unmask/nn/b.py",
        "src/unmask/cli.py",
    ]
    drawn = "```text\nsrc/unmask/\n├── nn/   parts\n│   └── a.py\n└── cli.py\n```"
    assert tree_paths(drawn) == ["src/unmask/", "src/unmask/nn/", "src/unmask/nn/a.py", "src/unmask/cli.py"]
    inline = "```\nsrc/unmask/\n  train/      trainer.py optim.py\n  cli.py\n```"
    assert "src/unmask/cli.py" in tree_paths(inline)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_a_document_names_exists(name):
    named = named_targets((ROOT / name).read_text(encoding="utf-8"))
    missing = named - make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert not missing, f"{name} names make targets that do not exist: {sorted(missing)}"


def test_the_file_tree_of_the_plan_is_the_disk():
    paths = tree_paths((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(paths) > 100
    missing = [path for path in paths if not (ROOT / path).exists() and not path.startswith("runs/")]
    assert not missing, f"docs/architecture.md shows files that do not exist: {missing}"


def test_the_plan_shows_every_room():
    shown = set(tree_paths((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    rooms = {f"src/unmask/{path.name}" for path in SOURCE.glob("*.py") if not path.name.startswith("_")}
    rooms |= {f"src/unmask/{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    assert not rooms - shown, f"docs/architecture.md does not show {sorted(rooms - shown)}"


def test_links_between_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{document.relative_to(ROOT)} -> {target}"
        for document in documents
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.match(r"[\w.-]+", entry)[0] for group in groups for entry in group} - {"unmask"}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([\w.-]+)`", page, re.MULTILINE))
    assert names == explained, f"not explained: {sorted(names - explained)}; gone: {sorted(explained - names)}"

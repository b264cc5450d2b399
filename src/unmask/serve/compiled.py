"""A model compiled ahead of time by AOTInductor: writing the package of machine code, and answering by it.

A package is a program, unlike every other file that `unmask` reads: `CompiledModel` runs the code in it. So no folder
is searched for one: the user names the file ([decision 48](../../../docs/decisions/0048-code-is-named.md)).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.files import atomic
from unmask.huggingface.hub import model_folder
from unmask.serve.onnx import Exported, drift, out_of
from unmask.serve.onnx.graph import EncoderGraph, graph_of, inputs_of, quiet
from unmask.serve.onnx.session import Arrays, GraphModel

PACKAGE = "model.pt2"
SUFFIX = ".pt2"


class CompiledModel(GraphModel):
    """A graph in a package of AOTInductor. It executes code of the file: open only packages that you trust.

    Raises UnmaskError for a file that is not a package for this version of PyTorch and this processor.
    """

    def __init__(self, graph: EncoderGraph, path: Path | str) -> None:
        super().__init__(graph, path)
        if not self.path.is_file():
            raise UnmaskError(f"There is no file {path}: compile one with unmask export --format aoti.")
        try:
            with quiet():
                self.package = torch._inductor.aoti_load_package(str(path))
        except Exception as error:  # the loader's exceptions have no common class
            raise UnmaskError(
                f"{path} cannot be opened by this PyTorch ({str(error).splitlines()[0][:200]}): compile it here again."
            ) from None

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        found = self.package(*(torch.from_numpy(values) for values in inputs.values()))
        return [output.numpy() for output in found]


def export_compiled(folder: Path | str, out: Path | str | None = None) -> Exported:
    """Compile a model for this processor, and write the package `model.pt2` to `out`, by default the folder `compiled`
    in the model's own.

    Raises UnmaskError, and writes nothing, without a C++ compiler, for a model that has no graph
    (`serve.onnx.graph_of`), and if outputs of the package differ from the model's by more than 1e-3.
    """
    out, folder = out_of(folder, out, "compiled"), model_folder(folder)
    _require_compiler()
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    graph, left_out = graph_of(loaded.model, loaded.settings)
    texts = drift.rows(graph, loaded.require_tokenizer(folder))
    with tempfile.TemporaryDirectory(prefix="unmask-aoti-") as temporary:
        made = Path(temporary) / PACKAGE
        write_package(graph, made)
        found = CompiledModel(graph, made).run(texts.inputs)
        apart = drift.difference(graph, texts, drift.of_model(graph, texts), found)
        if not apart <= drift.FARTHEST:
            raise UnmaskError(f"Outputs of {PACKAGE} differ from the model's by {apart:.1e}; nothing was written.")
        with atomic(out / PACKAGE) as whole:
            shutil.copyfile(made, whole)
    size = (out / PACKAGE).stat().st_size
    return Exported(out, graph.head, left_out, {PACKAGE: size}, {PACKAGE: apart})


def write_package(graph: EncoderGraph, path: Path) -> None:
    """Compile a graph for any number and length of texts; it uses as many threads as PyTorch at each call."""
    example, axes = inputs_of(graph)
    dims = [dict.fromkeys(own, torch.export.Dim.AUTO) for own in axes]
    with quiet(), torch.no_grad():
        program = torch.export.export(graph, example, dynamic_shapes=dims)
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs={"cpp.dynamic_threads": True}
        )


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception:  # the class differs between versions of PyTorch
        raise UnmaskError("AOTInductor needs a C++ compiler, such as g++ or clang++: install one.") from None

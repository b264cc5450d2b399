"""export: writes a model folder as an ONNX folder, and measures the difference between its answers and the model's."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.files import atomic
from unmask.huggingface.hub import is_name, model_folder, name_of
from unmask.models.model import Model
from unmask.serve.onnx import drift
from unmask.serve.onnx.graph import EncoderGraph, graph_of, quiet, write
from unmask.serve.onnx.session import OnnxModel, needed

PLAIN, FUSED, INT8 = "model.onnx", "model_optimized.onnx", "model_quantized.onnx"
"""Names of the files, as `optimum` gives them."""

INSIDE = "onnx"  # the folder of the graphs in the folder of their model, as on the Hugging Face hub
MEASURED = "backends.json"  # times of the graphs and of PyTorch (`serve.backends`)

BESIDE = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("modules.json", "sentence_*_config.json", "config_sentence_transformers.json"),
    *("1_Pooling/config.json", "2_Normalize/config.json"),
)
"""Files that other libraries need beside the graph; the `*` is a family: bert, roberta."""

Score = Callable[[Callable[[Model], Model]], Mapping[str, float]]
"""A function that replaces the model -> the metrics of the replacement on labelled rows."""


@dataclass(frozen=True)
class Exported:
    """The written files, and the difference between their outputs and the model's.

    head         name of the head of the graph
    left_out     heads of the folder that are not in the graph
    sizes        file -> bytes
    differences  file in float32 -> the largest difference from an output of the model
    drift        for the file in eight bits: name -> number (`drift.of_answers`)
    scores       file -> metric -> value, on labelled rows; "PyTorch" is the model itself
    """

    folder: Path
    head: str
    left_out: tuple[str, ...]
    sizes: Mapping[str, int]
    differences: Mapping[str, float]
    drift: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def export(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    fuse: bool = False,
    int8: bool = False,
    score: Score | None = None,
) -> Exported:
    """Write model.onnx, the config and the tokenizer to `out`, which `optimum` and `sentence-transformers` can open.

    out    None: the folder `onnx` in the model's own folder, which has the config and the tokenizer already
    fuse   also write model_optimized.onnx, in which operators of ONNX Runtime replace whole attentions, norms and
           activations; only ONNX Runtime reads it
    int8   also write model_quantized.onnx: weights in eight bits with one scale for each output, activations in eight
           bits with dynamic scales; from the fused graph if there is one. On x86 processors without VNNI, ONNX Runtime
           saturates large sums of products: the reported drift holds for the processor that exports
    score  scores each file on labelled rows

    Raises UnmaskError, and writes nothing, for a model that cannot be exported, if `out` holds another model, and if
    outputs of a float32 file differ from the model's by more than 1e-3.
    """
    out, folder = out_of(folder, out, INSIDE), model_folder(folder)
    if out.resolve() != folder.resolve() and any(out.glob("*.safetensors")):
        raise UnmaskError(f"{out} holds another model, whose config would be overwritten: choose another folder.")
    needed("onnx", "onnxscript", "onnxruntime")
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    graph, left_out = graph_of(loaded.model, loaded.settings)
    texts = drift.rows(graph, loaded.require_tokenizer(folder))
    with tempfile.TemporaryDirectory(prefix="unmask-onnx-") as temporary:
        made = _files(graph, Path(temporary), fuse=fuse, int8=int8)
        wanted = drift.of_model(graph, texts)
        models = {path.name: OnnxModel(graph, path) for path in made}
        said = {name: model.run(texts.inputs) for name, model in models.items()}
        differences = {name: drift.difference(graph, texts, wanted, said[name]) for name in said if name != INT8}
        for name, found in differences.items():
            if not found <= drift.FARTHEST:
                raise UnmaskError(f"Outputs of {name} differ from the model's by {found:.1e}; nothing was written.")
        scores: dict[str, Mapping[str, float]] = {}
        if score is not None:
            scores["PyTorch"] = score(lambda model: model)
            scores |= {name: score(_instead(model)) for name, model in models.items()}
        sizes = {path.name: path.stat().st_size for path in made}
        loss = drift.of_answers(graph, texts, wanted, said[INT8]) if int8 else {}
        _place(folder, out, made)
    return Exported(out, graph.head, left_out, sizes, differences, loss, scores)


def out_of(model: Path | str, out: Path | str | None, inside: str) -> Path:
    """The folder for exported files: `out`, or the folder `inside` in the model's own. Raises UnmaskError without `out`
    for a model of the hub, whose folder is a cache."""
    if out is None and is_name(model):
        raise UnmaskError(f"{model} lies in the cache of the hub: name another folder with --out FOLDER.")
    return Path(model) / inside if out is None else Path(out)


def _instead(model: OnnxModel) -> Callable[[Model], Model]:
    """A function that replaces any model by this one."""
    return lambda _: model


def _files(graph: EncoderGraph, folder: Path, *, fuse: bool, int8: bool) -> list[Path]:
    """Write the requested ONNX files to a folder, and return their paths."""
    made = [folder / PLAIN]
    write(graph, made[0])
    if fuse:
        made.append(folder / FUSED)
        _fuse(graph, *made)
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        from onnx import TensorProto

        types = {
            "DefaultTensorType": TensorProto.FLOAT
        }  # for the outputs of fused operators, which shape inference does not know

        with quiet():
            quantize_dynamic(
                made[-1], folder / INT8, per_channel=True, weight_type=QuantType.QInt8, extra_options=types
            )
        made.append(folder / INT8)
    return made


def _fuse(graph: EncoderGraph, plain: Path, fused: Path) -> None:
    """Fuse operators with ONNX Runtime. Raises UnmaskError if it recognises no attention."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    sizes = graph.model.config.to_dict()
    with quiet():
        found = optimize_model(
            str(plain),
            "bert",
            num_heads=sizes["heads"],
            hidden_size=sizes["dim"],
            optimization_options=FusionOptions("bert"),
            opt_level=0,
        )
    if not found.get_fused_operator_statistics().get("Attention"):
        raise UnmaskError("ONNX Runtime recognises no attention in this graph: leave --fuse out.")
    found.save_model_to_file(str(fused))


def _place(folder: Path, out: Path, made: list[Path]) -> None:
    """Copy the files into the folder, each whole, and remove the files of an earlier export."""
    inside = out.resolve() == (folder / INSIDE).resolve()
    beside = [] if inside else [(path, out / path.relative_to(folder)) for path in _beside(folder)]
    before = (out / PLAIN).is_file()
    stale = _beside(out) - {goal for _, goal in beside} if before else set()
    for path in (*stale, *(out / name for name in (PLAIN, FUSED, INT8, MEASURED))):
        path.unlink(missing_ok=True)
    for source, goal in [*beside, *((path, out / path.name) for path in made)]:
        if source.resolve() != goal.resolve():
            with atomic(goal) as temporary:
                shutil.copyfile(source, temporary)


def graph_in(folder: Path) -> Path:
    """The float32 graph in a model's folder: fused if there is one. Raises UnmaskError if there is none."""
    places = [place / name for place in (folder / INSIDE, folder) for name in (FUSED, PLAIN)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        copied = "copy the model out of the cache of the hub, and then " if name_of(folder) else ""
        own = "COPY" if copied else shlex.quote(str(folder))
        raise UnmaskError(
            f"{folder} has no graph for ONNX Runtime: {copied}write one with unmask export --model {own}."
        )
    return found


def _beside(folder: Path) -> set[Path]:
    return {path for name in BESIDE for path in folder.glob(name) if path.is_file()}


def render(found: Exported) -> str:
    """The result as text for a terminal."""
    lines = [f"Exported the head '{found.head}' to {found.folder}."]
    if found.left_out:
        lines.append(f"Not in the graph: {', '.join(found.left_out)}.")
    for name, size in found.sizes.items():
        line = f"{name:22} {size / 1e6:9.1f} MB"
        if name in found.differences:
            line += f"   at most {found.differences[name]:.1e} from PyTorch"
        lines.append(line)
    lines += [f"  {name:32} {value:.6f}" for name, value in found.drift.items()]
    if found.scores:
        names = list(found.scores)
        metrics = dict.fromkeys(metric for scores in found.scores.values() for metric in scores)
        lines += ["", f"{'':16}" + "".join(f"{name:>22}" for name in names)]
        for metric in metrics:
            lines.append(
                f"{metric:16}" + "".join(f"{found.scores[name].get(metric, float('nan')):22.4f}" for name in names)
            )
    return "\n".join(lines)

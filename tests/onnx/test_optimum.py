"""The folders of `unmask export` in `optimum` itself: models and pipelines answer as `transformers` does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert

pytestmark = pytest.mark.extras

TEXTS = ["the film was good", "great plot"]
HEADS = {  # head -> outputs, suffix of the classes of optimum and transformers, name of the pipeline
    "mlm": (0, "MaskedLM", "fill-mask"),
    "classification": (2, "SequenceClassification", "text-classification"),
    "multilabel": (2, "SequenceClassification", "text-classification"),
    "regression": (1, "SequenceClassification", "text-classification"),
    "tagging": (2, "TokenClassification", "token-classification"),
    "span": (2, "QuestionAnswering", "question-answering"),
    "choice": (1, "MultipleChoice", ""),
}
ASKED = {"fill-mask": "the film was [MASK]", "question-answering": {"question": "film", "context": "good plot"}}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("head", [*HEADS, "vectors"])
def test_optimum_opens_the_folder_and_answers_as_transformers(head, inside, tmp_path):
    ours = pytest.importorskip("optimum.onnxruntime")
    import transformers

    from unmask.serve.onnx import export

    outputs, suffix, pipeline = HEADS.get(head, (0, "", "feature-extraction"))
    folder, tokenizer = tmp_path / "m", Tokenizer.train(TEXTS * 5, 60)
    fields = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 40, "std": 0.5}
    model = Bert(vocabulary=tokenizer.size, **fields).build({} if head == "vectors" else as_heads({head: outputs}))
    settings = {"pooling": "mean", "normalise": True} if head == "vectors" else None
    labels = ("A", "B") if outputs == 2 and head != "span" else ()
    huggingface.save(folder, model, tokenizer, labels=labels, settings=settings)
    out = export(folder, None if inside else tmp_path / "out", fuse=inside, int8=inside).folder
    place = folder if inside else out
    found = getattr(ours, f"ORTModelFor{suffix or 'FeatureExtraction'}").from_pretrained(place)
    wanted = getattr(transformers, f"AutoModelFor{suffix}" if suffix else "AutoModel").from_pretrained(folder).eval()
    texts = transformers.AutoTokenizer.from_pretrained(place)
    given = dict(texts(TEXTS, ["dull", "and bad"], padding=True, return_tensors="pt"))
    if head == "choice":
        given = {name: tensor[None] for name, tensor in given.items()}
    with torch.no_grad():
        said, expected = found(**given), wanted(**given)
    for name in set(said) & set(expected):
        a, b = said[name].numpy(), expected[name].numpy()
        seen = given["attention_mask"].numpy() > 0
        np.testing.assert_allclose(*((x[seen] for x in (a, b)) if a.shape[:2] == seen.shape else (a, b)), atol=1e-5)
    if pipeline:
        answers = [
            transformers.pipeline(pipeline, model=one, tokenizer=texts)(ASKED.get(pipeline, TEXTS[0]))
            for one in (found, wanted)
        ]
        assert _rounded(answers[0]) == _rounded(answers[1])


def _rounded(answer):
    if isinstance(answer, list):
        return [_rounded(one) for one in answer]
    if isinstance(answer, dict):
        return {name: _rounded(one) for name, one in answer.items()}
    return round(float(answer), 3) if isinstance(answer, float | np.floating) else answer

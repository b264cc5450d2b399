"""Folders of wav2vec 2.0 and HuBERT for speech recognition, beside the classes and the processor of transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.serve import Predictor
from unmask.tasks import SpeechRecognition
from unmask.types import Kind

transformers = pytest.importorskip("transformers")
RATE = 16_000
SMALL = {"dim": 16, "layers": 2, "heads": 2, "hidden": 32, "channels": (8, 8), "kernels": (10, 4), "strides": (8, 4)}
PAGES = {"wav2vec2": Wav2Vec2(**SMALL), "hubert": Hubert(**SMALL)}
CLASSES = {"wav2vec2": "Wav2Vec2ForCTC", "hubert": "HubertForCTC"}
TASK = SpeechRecognition(("<pad>", "<unk>", "|", "a", "b", "c", "'"))


class Decoded:
    """Samples as the source of a row."""

    def __init__(self, samples):
        self.kept, self.digest = samples, "0"
        from unmask.data.recordings.decoding import Header

        self.header = Header(RATE, len(samples))

    def samples(self, rate, begin=0.0, end=None):
        return self.kept


def recording(seconds, seed, text=""):
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE)).astype(np.float32) * 0.1
    return Recording(place=f"{seed}", text=text, source=Decoded(samples)), samples


@pytest.mark.parametrize("kind", PAGES)
def test_transformers_opens_our_folder_and_reads_the_same_transcript(kind, tmp_path):
    model = PAGES[kind].build(TASK.heads, seed=0).eval()
    processor = RecordingProcessor(rate=RATE).for_model(PAGES[kind])
    huggingface.save(tmp_path, model, processor, labels=TASK.labels, settings=TASK.settings())
    theirs = getattr(transformers, CLASSES[kind]).from_pretrained(tmp_path).eval()
    tools = transformers.Wav2Vec2Processor.from_pretrained(tmp_path)
    assert theirs.config.vocab_size == len(tools.tokenizer) == 7
    assert theirs.config.pad_token_id == tools.tokenizer.pad_token_id == 0

    row, samples = recording(0.5, 1, "ab ca'b")
    inputs = tools(samples, sampling_rate=RATE, return_tensors="pt").input_values
    labels = torch.tensor([tools.tokenizer(row.text).input_ids])
    with torch.no_grad():
        found = theirs(inputs, labels=labels)
    [encoded] = TASK.encode([row], processor, 1_000).examples
    batch = collate.pad([encoded], Kind.PADDING, multiple=1)
    loss = TASK.loss(model, batch)["ctc"]
    # transformers adds up the losses of a batch; the count of ours divides them later.
    assert float(loss.sum.detach()) == pytest.approx(float(found.loss), rel=1e-4)
    [answer] = Predictor(tmp_path, precision="fp32").found([row])
    np.testing.assert_allclose(answer.log_p_FC, found.logits[0].log_softmax(-1), atol=1e-4)
    text = tools.batch_decode(found.logits.argmax(-1))[0]
    assert text
    assert " ".join(text.split()) == TASK.text(answer)


@pytest.mark.parametrize("kind", PAGES)
def test_a_folder_of_transformers_is_read_and_written_back(kind, tmp_path):
    """The blank is the last label, pieces are capitals, and two markers lie beside the vocabulary."""
    pieces = ["|", "A", "B", "C", "[UNK]", "[PAD]"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(
        tmp_path / "vocab.json", unk_token="[UNK]", pad_token="[PAD]", do_lower_case=True
    )
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE, do_normalize=True)
    tools = transformers.Wav2Vec2Processor(extractor, tokenizer)
    tools.save_pretrained(tmp_path)
    theirs = getattr(transformers, CLASSES[kind])
    config = theirs.config_class(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(8, 8),
        conv_kernel=(10, 4),
        conv_stride=(8, 4),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    model = theirs(config).eval()
    model.save_pretrained(tmp_path)

    loaded = huggingface.load(tmp_path)
    assert loaded.settings == {"blank": "[PAD]", "space": "|", "unknown": "[UNK]", "lower": True}
    assert len(loaded.labels) == len(tokenizer)
    huggingface.save(tmp_path / "ours", loaded.model, loaded.processor, labels=loaded.labels, settings=loaded.settings)
    again = theirs.from_pretrained(tmp_path / "ours").eval()
    ours = transformers.Wav2Vec2Processor.from_pretrained(tmp_path / "ours")
    assert again.config.pad_token_id == ours.tokenizer.pad_token_id == 5
    row, samples = recording(0.4, 2)
    inputs = tools(samples, sampling_rate=RATE, return_tensors="pt").input_values
    with torch.no_grad():
        logits = model(inputs).logits
        torch.testing.assert_close(again(inputs).logits, logits)
    text = tools.batch_decode(logits.argmax(-1))[0]
    assert ours.batch_decode(logits.argmax(-1))[0] == text
    assert Predictor(tmp_path, precision="fp32").answer([row])[0]["text"] == " ".join(text.split())


def test_a_blank_that_two_files_place_differently_is_refused(tmp_path):
    model = PAGES["wav2vec2"].build(TASK.heads, seed=0)
    processor = RecordingProcessor(rate=RATE).for_model(PAGES["wav2vec2"])
    huggingface.save(tmp_path, model, processor, labels=TASK.labels, settings=TASK.settings())
    (tmp_path / "manifest.json").unlink()
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "pad_token_id": 3}))
    with pytest.raises(UnmaskError, match=r"pad_token_id = 3 is not '<pad>', the blank"):
        huggingface.load(tmp_path)

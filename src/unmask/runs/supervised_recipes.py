"""Recipes of models that are trained from scratch on labelled rows: `unmask train NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from unmask.models.cct import SIZES as CCT_SIZES
from unmask.models.cct import Cct
from unmask.models.deit import Deit
from unmask.models.ecg_cnn import SIZES as ECG_SIZES
from unmask.models.ecg_cnn import EcgCnn
from unmask.models.han import SIZES as HAN_SIZES
from unmask.models.han import Han
from unmask.models.mfcc_cnn import SIZES as MFCC_SIZES
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.mina import SIZES as MINA_SIZES
from unmask.models.mina import Mina
from unmask.models.model import ModelConfig
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.resnet import SIZES as RESNET_SIZES
from unmask.models.resnet import ResNet
from unmask.models.shared_recurrent import SharedRecurrent
from unmask.models.signal_recurrent import SignalRecurrent
from unmask.models.signal_transformer import SignalTransformer
from unmask.models.swin import SIZES as SWIN_SIZES
from unmask.models.swin import Swin
from unmask.models.vgg import SIZES as VGG_SIZES
from unmask.models.vgg import Vgg
from unmask.models.vit import SIZES, Vit
from unmask.runs import catalogue
from unmask.runs.finetuning.config import FineTuning, Fit
from unmask.tasks.classification import ClassificationOptions
from unmask.tasks.image_classification import PictureOptions
from unmask.tasks.picture_training import Augmenting
from unmask.tasks.registry import task_of_page, task_with
from unmask.tasks.rows import TaskOptions
from unmask.tasks.signal_classification import SignalOptions
from unmask.tasks.speech_classification import SpeechOptions
from unmask.tasks.speech_recognition import RecognitionOptions
from unmask.tasks.tagging import TaggingOptions
from unmask.train.optim import Optimizer, Schedule

OTHERS = {"batch": "fit.batch_size"}  # names of pre-training -> fields of labelled rows
MINUTES = 30.0  # of a run whose length is not given


def vit_tiny() -> FineTuning:
    """Pictures of 32 pixels, by a ViT of 6 layers of 192 (2.7 M parameters): minutes on a laptop."""
    return _small(Vit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768))


def vit_small() -> FineTuning:
    """Pictures of 224 pixels, by ViT-small (22 M parameters), as DeiT trains it without a teacher: hours of a GPU."""
    return _published(Vit().replace(**SIZES["small"]))


def deit_tiny() -> FineTuning:
    """As vit-tiny, with a distillation token: --teacher FOLDER --hard yes learns from any classifier of pictures."""
    return _small(Deit(size=32, patch=4, dim=192, layers=6, heads=3, hidden=768))


def deit_small() -> FineTuning:
    """Pictures of 224 pixels, by DeiT-small (22 M parameters): hours of a GPU, with a teacher (Touvron et al. 2021)."""
    return _published(Deit().replace(**SIZES["small"]))


def swin_tiny() -> FineTuning:
    """Pictures of 32 pixels, by a Swin of three stages from 24 wide (0.3 M parameters): minutes on a laptop."""
    return _small(Swin(**SWIN_SIZES["cpu"]))


def cct_tiny() -> FineTuning:
    """Pictures of 32 pixels, by CCT-2/3x2 (0.3 M parameters): minutes on a laptop."""
    return _small(Cct(**CCT_SIZES["2/3x2"], attention_dropout=0.0, drop_path=0.0))


def resnet_tiny() -> FineTuning:
    """Pictures of 32 pixels, by ResNet-20 (0.3 M parameters; He et al. 2016, section 4.2): minutes on a laptop."""
    return _small(ResNet(**RESNET_SIZES["cpu"]), algorithm="adamw", lr=5e-3)


def vgg_tiny() -> FineTuning:
    """Pictures of 32 pixels, by a VGG column of six convolutions from 32 to 128 channels: minutes on a laptop."""
    return _small(Vgg(**VGG_SIZES["cpu"]), algorithm="adamw", lr=5e-3)


def mfcc_cnn_tiny() -> FineTuning:
    """Recordings of up to a second or so, by four convolutions over cepstra (0.1 M parameters): minutes on a laptop."""
    options = SpeechOptions(speed=0.1, shift=0.1, noise=0.5, silenced_bands=2)
    optimizer = Optimizer(algorithm="adamw", lr=5e-3, weight_decay=0.05)
    fit = Fit(minutes=5.0, batch_size=64, optimizer=optimizer, schedule=Schedule(warmup=0.05))
    return _new(MfccCnn(**MFCC_SIZES["tiny"]), options, fit)


def mfcc_cnn_transcripts() -> FineTuning:
    """Transcripts of recordings of few words and one voice, by four small convolutions over cepstra (0.03 M
    parameters): minutes on a laptop."""
    optimizer = Optimizer(algorithm="adamw", lr=1e-2, weight_decay=0.1)
    fit = Fit(minutes=5.0, batch_size=8, optimizer=optimizer, schedule=Schedule(warmup=0.1))
    return _new(MfccCnn(widths=(32, 32, 48, 48), dropout=0.3), RecognitionOptions(speed=0.1), fit)


def han() -> FineTuning:
    """Documents, by a hierarchical attention network: words, then sentences (Yang et al. 2016): minutes on a laptop."""
    return _of_texts(Han(**HAN_SIZES["tiny"], dropout=0.3), ClassificationOptions(), length=512)


def bilstm_classifier() -> FineTuning:
    """Short texts, by a two-layer LSTM in both directions: minutes on a laptop."""
    return _of_texts(RecurrentNetwork(**READER), ClassificationOptions(), length=64)


def bilstm_tagger() -> FineTuning:
    """Tags of words, by the same network: minutes on a laptop."""
    return _of_texts(RecurrentNetwork(**READER), TaggingOptions(), length=64)


def bilstm_two_tasks() -> FineTuning:
    """Short texts and tags of words at once: a tagger on the first layer of an LSTM, a classifier on the second."""
    second = {"second_task": task_with(TaggingOptions())}
    return _of_texts(SharedRecurrent(**READER), ClassificationOptions(), length=64).replace(second=second)


def mina() -> FineTuning:
    """Electrocardiograms, by MINA: four bands, attention to beats, rhythm and bands (0.1 M parameters): minutes on a
    laptop."""
    return _of_mina("mina")


def acrnn() -> FineTuning:
    """As mina, without bands and knowledge: convolutions, an LSTM, and attention to segments (Hong et al. 2019)."""
    return _of_mina("acrnn")


def crnn() -> FineTuning:
    """As acrnn, without attention: convolutions and an LSTM over segments of a signal."""
    return _of_mina("crnn")


def cnn_signal() -> FineTuning:
    """As crnn, without the LSTM: one layer of convolutions in the segments of a signal."""
    return _of_mina("cnn")


def ecg_cnn() -> FineTuning:
    """Electrocardiograms, by twelve residual blocks of convolutions (0.2 M parameters): minutes on a laptop."""
    return _of_signals(EcgCnn(**ECG_SIZES["tiny"]), lr=3e-3)


def ecg_cnn_base() -> FineTuning:
    """Electrocardiograms, by the deep convolutional network of Hannun et al. (2019), 10 M parameters: a GPU."""
    return _of_signals(EcgCnn(), lr=1e-3)


def transformer_signal() -> FineTuning:
    """Records of sensors, by a Transformer of four layers over their segments (0.8 M parameters): minutes on a
    laptop."""
    return _of_signals(SignalTransformer(), lr=1e-2, algorithm="muon")


def lstm_signal() -> FineTuning:
    """Records of sensors, by a two-layer LSTM over their segments in both directions (0.2 M parameters): minutes on a
    laptop."""
    return _of_signals(SignalRecurrent(), lr=3e-3)


READER: dict[str, Any] = {"dim": 128, "hidden": 128, "layers": 2, "bidirectional": True, "dropout": 0.3}


def _of_texts(page: ModelConfig, options: TaskOptions, length: int) -> FineTuning:
    """Short runs on texts of up to `length` tokens; the tokenizer is learned from the training rows."""
    fit = Fit(minutes=MINUTES, batch_size=32, optimizer=Optimizer(lr=2e-3), schedule=Schedule(warmup=0.05))
    return _new(page, options, fit).replace(rows={"length": length})


def _of_mina(size: str) -> FineTuning:
    """For short runs: published are a dropout of half of the eight numbers of a band, and a rate of 3e-3
    (docs/log.md)."""
    return _of_signals(Mina(**MINA_SIZES[size], dropout=0.1), lr=8e-3)


def _of_signals(page: ModelConfig, lr: float, algorithm: Literal["muon", "adamw"] = "adamw") -> FineTuning:
    """Short runs on windows of ten seconds, as published for MINA, in smaller batches."""
    optimizer = Optimizer(algorithm=algorithm, lr=lr, weight_decay=0.01)
    fit = Fit(minutes=MINUTES, batch_size=32, optimizer=optimizer, schedule=Schedule(warmup=0.1))
    return _new(page, SignalOptions(), fit)


def _small(page: ModelConfig, algorithm: Literal["muon", "adamw"] = "muon", lr: float = 1e-2) -> FineTuning:
    """Short runs: light augmentation, and Muon for models with repeated blocks of linear layers (decision 22)."""
    options = PictureOptions(padding=4, flip=0.5, smoothing=0.1)
    optimizer = Optimizer(algorithm=algorithm, lr=lr, weight_decay=0.05)
    return _new(
        page, options, Fit(minutes=MINUTES, batch_size=128, optimizer=optimizer, schedule=Schedule(warmup=0.05))
    )


def _published(page: ModelConfig) -> FineTuning:
    """Touvron et al. 2021, table 9: 300 epochs of batches of 1,024 at 1e-3, with strong augmentation."""
    changed = Augmenting(crop=0.08, flip=0.5, operations=2, erasing=0.25, mixup=0.8, cutmix=1.0, smoothing=0.1)
    optimizer = Optimizer(algorithm="adamw", lr=1e-3, weight_decay=0.05)
    fit = Fit(epochs=300.0, batch_size=1_024, optimizer=optimizer, schedule=Schedule(warmup=5 / 300))
    return _new(page.replace(drop_path=0.1), PictureOptions(**vars(changed)), fit)


def _new(page: ModelConfig, options: TaskOptions, fit: Fit) -> FineTuning:
    """One seed of a new model, on the task that has these options."""
    return FineTuning(page=page, task=task_with(options), options=options, fit=fit, seeds=1)


def _recipes() -> dict[str, Callable[[], FineTuning]]:
    return catalogue.functions([globals()], "FineTuning")


def names() -> dict[str, str]:
    """Recipe name -> the first paragraph of its documentation, in the order in which they are written."""
    return catalogue.introductions(_recipes())


def find(name: str) -> FineTuning:
    """The config of a recipe by its name. Raises UnmaskError, which names the nearest, if it does not exist."""
    found: FineTuning = catalogue.find(_recipes(), name, "recipe")
    return found


def timed(config: FineTuning, given: Mapping[str, Any]) -> FineTuning:
    """The config without minutes if epochs or steps are among the given fields, and without these if minutes are."""
    names = {name.replace("-", "_").rpartition(".")[2] for name in config.renamed(given, OTHERS)}
    if names & {"epochs", "least_steps"}:
        return config.replace(fit={"minutes": None})
    return config.replace(fit={"epochs": None, "least_steps": None}) if "minutes" in names else config


def overridden(config: FineTuning, changes: Mapping[str, Any]) -> FineTuning:
    """The config with given fields; epochs replace minutes, and minutes epochs (`timed`). The task of a new model is
    the one of this name for what the model reads. Raises UnmaskError for a field that does not exist."""
    rest = dict(changes)
    if "task" in rest and config.page is not None:
        config = config.replace(task=task_of_page(str(rest.pop("task")), config.page))
    return timed(config, rest).override(rest, **OTHERS)

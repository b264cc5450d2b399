"""One page for each system: its config, and how its parts are put together."""

from unmask.models.albert import Albert
from unmask.models.bert import Bert, Roberta
from unmask.models.captioner import Captioner
from unmask.models.causal import CausalModel
from unmask.models.cct import Cct
from unmask.models.convs2s import ConvS2S
from unmask.models.deit import Deit
from unmask.models.electra import Discriminator, Electra
from unmask.models.elmo import Elmo
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.ib_bert import IbBert
from unmask.models.mae import Mae
from unmask.models.mobilebert import MobileBert
from unmask.models.model import Model
from unmask.models.modernbert import ModernBert
from unmask.models.rebuilding import resized
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.resnet import ResNet
from unmask.models.seq2seq import Seq2Seq
from unmask.models.stack_model import StackModel
from unmask.models.swin import Swin
from unmask.models.t5 import T5
from unmask.models.transformer import Transformer
from unmask.models.transformer_xl import TransformerXl
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.models.writer import State, Writer

__all__ = [
    "T5",
    "Albert",
    "Bert",
    "Captioner",
    "CausalModel",
    "Cct",
    "ConvS2S",
    "Deit",
    "Discriminator",
    "Electra",
    "Elmo",
    "EncoderDecoder",
    "Gpt",
    "Gpt2",
    "IbBert",
    "Mae",
    "MobileBert",
    "Model",
    "ModernBert",
    "RecurrentNetwork",
    "ResNet",
    "Roberta",
    "Seq2Seq",
    "StackModel",
    "State",
    "Swin",
    "Transformer",
    "TransformerXl",
    "Vgg",
    "Vit",
    "Writer",
    "resized",
]

"""One page per wiring: the config's fields, how the parts are put together, and the Hugging Face names."""

from unmask.models.bert import Bert, Roberta
from unmask.models.model import Model
from unmask.models.sequence import EncoderDecoder, State, Writer

__all__ = ["Bert", "EncoderDecoder", "Model", "Roberta", "State", "Writer"]

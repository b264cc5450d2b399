"""One page per wiring: the config's fields, how the parts are put together, and the Hugging Face names."""

from unmask.models.bert import Bert, Roberta
from unmask.models.model import Model

__all__ = ["Bert", "Model", "Roberta"]

"""ELMo: words from characters, language models from both sides, their layers mixed for tasks (Peters et al., 2018).

Shapes: B rows, T tokens (characters) of a row, W words of all rows, C characters of the longest, N sequences of words,
S words of the longest, D width in one direction, L layers, E = 2 D (L + 1) numbers of all layers side by side,
R width of a task's own network in one direction, M places.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.model import POOLED, Model, ModelConfig
from unmask.models.table import Table
from unmask.nn import Classifier, Dropout, LinearChainCRF, ScalarMix
from unmask.nn.sequences import Sequences
from unmask.types import Batch

WORDS = "words"
"""The head of pre-training: which word comes next, or came before."""


@dataclass(frozen=True, kw_only=True)
class Elmo(ModelConfig):
    """The numbers that make an ELMo; the defaults are the published ones (Peters et al. 2018, section 3.4).

    vocabulary  tokens, each a character that begins a word or goes on with one
    continues   first id of those that go on
    characters  width of the vector of a character
    widths      characters that a filter sees        filters   number of those of each width
    highways    layers between filters and words     dim       D, width of a word and of each direction's outputs
    layers      L of the language model; 0: none, for a task's network alone
    hidden      cells of an LSTM, which are projected to `dim`
    task        R, width of the network of a task: a two-way LSTM between the vectors of words and the head
    length      longest text that a task reads at once, in characters; nothing breaks beyond it
    dropout     on what layers read and say
    padding     id of the padding token

    Word boundaries are marked by tokens of their own for first characters, where the published model frames words by
    two more characters; cells are not clipped.
    """

    vocabulary: int = 262
    continues: int = 133
    characters: int = 16
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1_024)
    highways: int = 2
    dim: int = 512
    layers: int = 2
    hidden: int = 4_096
    task: int = 256
    length: int | None = 1_024
    dropout: float = 0.1
    padding: int = 0

    @property
    def segments(self) -> int:
        """Of a pair, both texts are read as they come: nothing marks which one a token belongs to."""
        return 1

    @property
    def spelling(self) -> int:
        """How many times as long as in pieces of words a text is, about: by so much tasks may have longer rows."""
        return 8

    @property
    def width(self) -> int:
        """2 R, of what a task's head reads."""
        return 2 * self.task

    def embedding(self) -> CharacterCNN:
        """The context-independent word vectors x."""
        if len(self.widths) != len(self.filters):
            raise UnmaskError(f"{len(self.widths)} widths of filters need as many numbers, not {len(self.filters)}.")
        filters = dict(zip(self.widths, self.filters, strict=True))
        return CharacterCNN(self.vocabulary, self.characters, filters, highways=self.highways, outputs=self.dim)

    def reader(self) -> TaskReader:
        """The network of a task. Its own word vectors are learned from spelling, by 128 filters of 3 characters."""
        own = CharacterCNN(self.vocabulary, self.characters, {3: 128})
        return TaskReader(own, 2 * self.dim, self.task, layers=self.layers, dropout=self.dropout)

    def head(self, name: str, outputs: int) -> nn.Module:
        """The layer that answers for `name`: over the words of pre-training, or over classes. Raises UnmaskError for
        heads that answer for single characters."""
        if name == WORDS:
            return Classifier(self.dim, outputs)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        if name not in (*POOLED, "tagging"):
            raise unknown("head of an ELMo, which answers for words and texts:", name, [WORDS, "tagging", *POOLED])
        return Classifier(self.width, outputs, self.dropout)

    def build(self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False) -> ElmoModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> outputs; default: none, which is the language model without its softmax
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  have a task's network though no head needs it
        """
        if self.layers and self.hidden <= self.dim:
            raise UnmaskError(f"An LSTM is projected to fewer numbers than its {self.hidden} cells, not to {self.dim}.")
        heads = heads or {}
        built = {name: self.head(name, outputs) for name, outputs in heads.items()}
        stack = TwoWayStack([TwoWayLayer(self.dim, self.hidden) for _ in range(self.layers)], self.dropout)
        reader = self.reader() if pooler or set(heads) - {WORDS} else None
        model = ElmoModel(self, self.embedding(), stack, built, reader)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Xavier's uniform (Glorot & Bengio 2010), 1 for the bias of forget gates, -2 for that of highways, which at
        first carry what they read (Srivastava et al. 2015); character vectors of about length 1."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, std=part.embedding_dim**-0.5, generator=generator)
            elif isinstance(part, (nn.Linear, nn.Conv1d, nn.LSTM)):
                for name, p in part.named_parameters():
                    if p.dim() > 1:
                        nn.init.xavier_uniform_(p, generator=generator)
                    else:
                        nn.init.zeros_(p)
                    if name.startswith("bias_ih"):
                        nn.init.ones_(p.data.chunk(4)[1])
        for part in module.modules():
            if isinstance(part, Highway):
                nn.init.constant_(part.gate.bias, -2.0)


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"widths": (1, 2, 3, 4), "filters": (16, 32, 64, 64), "highways": 1, "dim": 64, "hidden": 256, "task": 64},
    "small": {"highways": 1, "dim": 128, "hidden": 1_024},
    "medium": {"highways": 1, "dim": 256, "hidden": 2_048},
    "original": {"highways": 2, "dim": 512, "hidden": 4_096},
}
"""Sizes: small, medium and original as they were released."""


class Highway(nn.Module):
    """y = t * relu(W x + b) + (1 - t) * x, where t = sigmoid(W_t x + b_t) (Srivastava et al. 2015)."""

    def __init__(self, dim: int):
        super().__init__()
        self.transform, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        t = self.gate(x).sigmoid()
        y: Tensor = t * self.transform(x).relu() + (1 - t) * x
        return y


class CharacterCNN(nn.Module):
    """project(highways(relu(max over places of each filter))): a word from its characters (Kim et al. 2016).

    A filter that sees k characters stands at each character of the word and sees zeros behind its end.

    filters   characters that a filter sees -> number of such filters
    outputs   width of a word; None: the filters as they are
    """

    def __init__(
        self, vocabulary: int, dim: int, filters: Mapping[int, int], *, highways: int = 0, outputs: int | None = None
    ):
        super().__init__()
        self.token, width = nn.Embedding(vocabulary, dim), sum(filters.values())
        self.filters = nn.ModuleList(nn.Conv1d(dim, number, k) for k, number in filters.items())
        self.highways = nn.ModuleList(Highway(width) for _ in range(highways))
        self.project = nn.Identity() if outputs is None else nn.Linear(width, outputs)
        self.width = width if outputs is None else outputs

    def forward(self, characters_WC: Tensor, lengths_W: Tensor) -> Tensor:
        """[W, C] ids, of which the first `lengths_W` are read -> [W, D]. Words that are the same are read once."""
        characters_WC, lengths_W, back_W = _distinct(characters_WC, lengths_W)
        read_WC = torch.arange(characters_WC.shape[1], device=characters_WC.device) < lengths_W[:, None]
        x_WEC = (self.token(characters_WC) * read_WC[..., None]).transpose(1, 2)
        found = []
        for filters in self.filters:
            assert isinstance(filters, nn.Conv1d)
            said_WFC = filters(F.pad(x_WEC, (0, filters.kernel_size[0] - 1)))
            found.append(said_WFC.masked_fill(~read_WC[:, None], float("-inf")).amax(-1).relu())
        x_WD = torch.cat(found, -1)
        for highway in self.highways:
            x_WD = highway(x_WD)
        words_WD: Tensor = self.project(x_WD)[back_W]
        return words_WD


def _distinct(characters_WC: Tensor, lengths_W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The different words, their lengths, and for each word which of them it is."""
    rows, back_W = torch.cat([characters_WC, lengths_W[:, None]], 1).unique(dim=0, return_inverse=True)
    return rows[:, :-1], rows[:, -1], back_W


class TwoWayLayer(nn.Module):
    """An LSTM that reads from the left and one that reads from the right; each knows nothing of the other.

    The state of `hidden` cells is projected to D numbers, which go on upwards and to the next word (Sak et al. 2014).
    """

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.forwards, self.backwards = (nn.LSTM(dim, hidden, proj_size=dim, batch_first=True) for _ in range(2))

    def forward(self, left_NSD: Tensor, right_NSD: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
        """What comes from the left, and what from the right, [N, S, D] each. Padding is read last from either side,
        and so changes nothing."""
        dtype = next(self.forwards.parameters()).dtype  # which layers before this one need not have kept
        left_NSD, right_NSD = left_NSD.to(dtype), right_NSD.to(dtype)
        with warnings.catch_warnings():  # torch says that a CPU has no faster kernel for projections
            warnings.filterwarnings("ignore", message="LSTM with projections")
            return self.forwards(left_NSD)[0], flip(self.backwards(flip(right_NSD, lengths_N))[0], lengths_N)


class TwoWayStack(nn.Module):
    """h_0 = x and h_j = LSTM_j(h_j-1), from the second layer on + h_j-1 (section 3.4), in each direction for itself."""

    def __init__(self, blocks: Sequence[TwoWayLayer], dropout: float = 0.0):
        super().__init__()
        self.blocks, self.dropout = nn.ModuleList(blocks), Dropout(dropout)

    def forward(self, x_NSD: Tensor, lengths_N: Tensor) -> list[Tensor]:
        """The L + 1 layers, [N, S, 2 D] each: [x ; x], then what comes from the left beside what comes from the right
        (section 3.2, the set R_k)."""
        left = right = x_NSD
        layers = [torch.cat([left, right], -1)]
        for j, block in enumerate(self.blocks):
            more_left, more_right = block(self.dropout(left), self.dropout(right), lengths_N)
            left, right = (more_left + left, more_right + right) if j else (more_left, more_right)
            layers.append(torch.cat([left, right], -1))
        return layers


def flip(x_NSD: Tensor, lengths_N: Tensor) -> Tensor:
    """Each sequence from its end to its beginning; what lies behind it stays."""
    places_S = torch.arange(x_NSD.shape[1], device=x_NSD.device)
    from_NS = torch.where(places_S < lengths_N[:, None], lengths_N[:, None] - 1 - places_S, places_S)
    return x_NSD.gather(1, from_NS[..., None].expand_as(x_NSD))


class TaskReader(nn.Module):
    """What a task's head reads: a two-way LSTM over [w ; ELMo], own word vectors beside the mix (section 3.3).

    ELMo = scale * sum of softmax(s)_j h_j (equation 1) is `mix`, None where there is no language model.
    """

    def __init__(self, own: CharacterCNN, mixed: int, hidden: int, *, layers: int, dropout: float = 0.0):
        super().__init__()
        self.own, self.dropout = own, Dropout(dropout)
        self.mix = ScalarMix(layers + 1) if layers else None
        self.lstm = nn.LSTM(own.width + (mixed if layers else 0), hidden, batch_first=True, bidirectional=True)

    def forward(self, own_NSD: Tensor, layers: Sequence[Tensor], lengths_N: Tensor) -> Tensor:
        """[N, S, 4 R]: of each word, and behind it a summary of its sequence: the state from the left after its last
        word, and that from the right after its first."""
        x_NSD = own_NSD if self.mix is None else torch.cat([own_NSD, self.mix(layers)], -1)
        packed = nn.utils.rnn.pack_padded_sequence(self.dropout(x_NSD), lengths_N.cpu(), batch_first=True)
        said, (last_2NR, _) = self.lstm(packed)
        said_NSR = nn.utils.rnn.pad_packed_sequence(said, batch_first=True, total_length=x_NSD.shape[1])[0]
        summary_NR = torch.cat([last_2NR[0], last_2NR[1]], -1)
        return torch.cat([said_NSR, summary_NR[:, None].expand_as(said_NSR)], -1)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Where the words of some rows lie, and how they are spelled.

    places      [W] of their first characters, in the flattened rows
    characters  [W, C] ids            lengths  [W] of which so many are theirs
    sequences   which words belong together
    """

    places: Tensor
    characters: Tensor
    lengths: Tensor
    sequences: Sequences

    @classmethod
    def of(cls, batch: Batch, continues: int) -> Self:
        """A word begins at a token below `continues`, and where a sequence does."""
        tokens_BT = batch.tokens
        documents_BT = torch.ones_like(tokens_BT) if batch.documents is None else batch.documents
        first_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
        first_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
        real_BT = documents_BT > 0
        begins = (real_BT & (first_BT | (tokens_BT < continues))).flatten()
        places_W = begins.nonzero().squeeze(1)
        real = real_BT.flatten().nonzero().squeeze(1)
        owners = begins.long().cumsum(0)[real] - 1
        inside = real - places_W[owners]
        lengths_W = torch.bincount(owners, minlength=len(places_W))
        longest = int(lengths_W.max()) if len(lengths_W) else 0
        characters_WC = tokens_BT.new_zeros(len(places_W), longest)
        characters_WC[owners, inside] = tokens_BT.flatten()[real]
        row_B1 = torch.arange(len(tokens_BT), device=tokens_BT.device)[:, None]
        numbers_BT = row_B1 * (documents_BT.max() + 1) + documents_BT
        return cls(places_W, characters_WC, lengths_W, Sequences.of(numbers_BT.flatten()[places_W][None]))


class ElmoModel(Model):
    """Characters in, states of words out, each at the place of its first character; elsewhere they are zero.

    pooler  the network of a task, None in pre-training
    """

    config: Elmo
    embedding: CharacterCNN  # type: ignore[assignment]  # of characters, not of tokens
    stack: TwoWayStack  # type: ignore[assignment]  # that hands on every layer
    pooler: TaskReader | None  # type: ignore[assignment]  # that sums a sequence up in its own way

    def __init__(
        self,
        config: Elmo,
        embedding: CharacterCNN,
        stack: TwoWayStack,
        heads: Mapping[str, nn.Module],
        reader: TaskReader | None,
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)  # type: ignore[arg-type]  # as above
        self.pooler = reader

    def forward(self, batch: Batch) -> Tensor:
        """All layers of the language model side by side [B, T, E], or what the network of a task says, [B, T, 4 R]."""
        words = Words.of(batch, self.config.continues)
        sequences, lengths_N = words.sequences, words.sequences.lengths
        layers = self.stack(sequences.unpack(self.embedding(words.characters, words.lengths)[None]), lengths_N)
        if self.pooler is None:
            said_NSE = torch.cat(layers, -1)
        else:
            own_WD = self.pooler.own(words.characters, words.lengths)
            said_NSE = self.pooler(sequences.unpack(own_WD[None]), layers, lengths_N)
        said_WE = sequences.pack(said_NSE)[0]
        flat = said_WE.new_zeros(batch.tokens.numel(), said_WE.shape[-1])
        return flat.index_copy(0, words.places, said_WE).unflatten(0, batch.tokens.shape)

    def answer(self, name: str, hidden_BTE: Tensor, places_M: Tensor) -> Tensor:
        """Answers [M, C] of the head `name` at places of the flattened rows, where words begin."""
        x_ME, R2 = hidden_BTE.flatten(0, 1)[places_M], self.config.width
        if name != WORDS:
            x_ME = x_ME[:, -R2:] if name in POOLED else x_ME[:, :R2]
        answers_MC: Tensor = self.heads[name](x_ME)
        return answers_MC

    def direction(self, hidden_BTE: Tensor, number: int) -> Tensor:
        """[B, T, D]: the last layer from the left (0) or from the right (1), from which words are guessed."""
        D = self.config.dim
        begin = (2 * self.config.layers + number) * D
        return hidden_BTE[..., begin : begin + D]


HUGGINGFACE = Table(
    model_type="unmask-elmo",
    config=Elmo,
    prefix="",
    fields={name: name for name in Elmo().to_dict()},
    fixed={},
    trunk=(
        ("embedding", "characters"),
        ("stack.blocks.{}.forwards", "layers.{}.forward"),
        ("stack.blocks.{}.backwards", "layers.{}.backward"),
    ),
    pooler=(("pooler", "task"),),
    heads={
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*sorted(POOLED), "tagging", WORDS)},
        "crf": tuple((f"heads.crf.{part}", f"crf.{part}") for part in ("transitions", "begin", "end")),
    },
    architectures={},
)
"""A folder of our own form. A layer's weights are named as those of torch.nn.LSTM."""

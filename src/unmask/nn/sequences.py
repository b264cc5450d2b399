"""Sequences: unpacks the sequences of packed rows to one a row, and packs them again, for networks that read token by
token.

Shapes: B rows, T tokens of a row, N sequences of all rows (N >= B if rows are packed), S tokens of the longest
sequence, K tokens of all rows without padding, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """The places of the sequences of some rows. Sequences are sorted by length, the longest first, so that those that
    have more than any number of tokens are the first ones.

    shape    (B, T) of the rows
    places   [K] place of each token that is not padding, in the flattened rows
    owners   [K] index of the sequence that it belongs to
    steps    [K] its position within that sequence
    lengths  [N] number of tokens of each sequence, descending
    """

    shape: tuple[int, int]
    places: Tensor
    owners: Tensor
    steps: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, documents_BT: Tensor) -> Self:
        """Find the sequences in `Batch.documents`: one begins where the number in a row changes; 0 is padding."""
        before_BT = torch.zeros_like(documents_BT)
        before_BT[:, 1:] = documents_BT[:, :-1]
        real_BT = documents_BT > 0
        places_K = real_BT.flatten().nonzero().squeeze(1)
        begins_K = (documents_BT != before_BT).flatten()[places_K]
        found_K = begins_K.long().cumsum(0) - 1  # number of the sequence, in the order of the rows
        firsts_N = begins_K.nonzero().squeeze(1)
        lengths_N = torch.diff(firsts_N, append=firsts_N.new_tensor([len(places_K)]))
        order_N = lengths_N.argsort(descending=True, stable=True)
        ranks_N = torch.empty_like(order_N)
        ranks_N[order_N] = torch.arange(len(order_N), device=order_N.device)
        steps_K = torch.arange(len(places_K), device=places_K.device) - firsts_N[found_K]
        B, T = documents_BT.shape
        return cls((B, T), places_K, ranks_N[found_K], steps_K, lengths_N[order_N])

    def unpack(self, x_BTD: Tensor) -> Tensor:
        """Rows -> sequences, one a row: [B, T, D] -> [N, S, D], zero after the end of each."""
        longest = int(self.lengths[0]) if len(self.lengths) else 0
        x_NSD = x_BTD.new_zeros(len(self.lengths), longest, x_BTD.shape[-1])
        return x_NSD.index_put((self.owners, self.steps), x_BTD.flatten(0, 1)[self.places])

    def pack(self, x_NSD: Tensor) -> Tensor:
        """Sequences -> the rows that they came from: [N, S, D] -> [B, T, D], zero at padding."""
        B, T = self.shape
        x_KD = x_NSD[self.owners, self.steps]
        return x_NSD.new_zeros(B * T, x_NSD.shape[-1]).index_put((self.places,), x_KD).unflatten(0, (B, T))


def means(hidden_BTD: Tensor, places_M: Tensor, documents_BT: Tensor | None) -> Tensor:
    """The mean state [M, D] of the sequences that hold these places of the flattened rows.

    documents_BT  number of the sequence of each place in its row; None: each row is one sequence
    """
    T = hidden_BTD.shape[1]
    if documents_BT is None:
        return hidden_BTD.mean(1)[places_M // T]
    own_MT = documents_BT[places_M // T] == documents_BT.flatten()[places_M, None]
    share_MT = own_MT.to(hidden_BTD.dtype) / own_MT.sum(1, keepdim=True)
    return (share_MT[:, None] @ hidden_BTD[places_M // T]).squeeze(1)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The places of the words of some rows, and their characters.

    places      [W] place of the first character of each word, in the flattened rows
    characters  [W, C] ids of the characters of each word, padded with zeros
    lengths     [W] number of characters of each word
    sequences   the sequences of words
    """

    places: Tensor
    characters: Tensor
    lengths: Tensor
    sequences: Sequences

    @classmethod
    def of(cls, tokens_BT: Tensor, documents_BT: Tensor | None, continues: int) -> Self:
        """Find the words: one begins at each token below `continues`, and at the start of each sequence.

        documents_BT  `Batch.documents`; None: each row is one sequence
        """
        documents_BT = torch.ones_like(tokens_BT) if documents_BT is None else documents_BT
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


@dataclass(frozen=True, slots=True, eq=False)
class Sentences:
    """The sentences of the documents of some rows, without the separators between them.

    words      the words of each sentence, as sequences; N of them
    order      [N] the sentences in the order of the rows
    documents  the sentences, in this order, of each document, as sequences; D of them
    numbers    [D] the number of each document, as in `numbers_BT`
    numbers_BT  [B, T] the number of the document at each place, which differs from row to row; that of padding is the
                number of no document
    """

    words: Sequences
    order: Tensor
    documents: Sequences
    numbers: Tensor
    numbers_BT: Tensor

    @classmethod
    def of(cls, tokens_BT: Tensor, documents_BT: Tensor | None, separator: int) -> Self:
        """Find the sentences: one ends before each separator, and at the end of each document.

        documents_BT  `Batch.documents`; None: each row is one document
        """
        documents_BT = torch.ones_like(tokens_BT) if documents_BT is None else documents_BT
        ends_BT = tokens_BT == separator
        breaks_BT = ends_BT.clone()
        breaks_BT[:, 1:] |= documents_BT[:, 1:] != documents_BT[:, :-1]
        real_BT = (documents_BT > 0) & ~ends_BT
        words = Sequences.of((1 + breaks_BT.long().cumsum(1)) * real_BT)
        begins = words.steps == 0
        row_B1 = torch.arange(len(tokens_BT), device=tokens_BT.device)[:, None]
        numbers_BT = row_B1 * (documents_BT.max() + 1) + documents_BT
        of_sentences_N = numbers_BT.flatten()[words.places[begins]]
        documents = Sequences.of(of_sentences_N[None])
        firsts = documents.steps == 0
        numbers_D = torch.empty_like(documents.lengths)
        numbers_D[documents.owners[firsts]] = of_sentences_N[documents.places[firsts]]
        return cls(words, words.owners[begins], documents, numbers_D, numbers_BT)

    def beside(self, vectors_NE: Tensor) -> Tensor:
        """Vectors of the sentences -> sequences of them, a document a row: [N, E] -> [D, S, E]."""
        return self.documents.unpack(vectors_NE[self.order][None])

    def at(self, places_M: Tensor, vectors_DE: Tensor) -> Tensor:
        """[M, E]: the vector of the document at each place of the flattened rows; zero for one without a word."""
        same_MD = self.numbers_BT.flatten()[places_M][:, None] == self.numbers
        return same_MD.to(vectors_DE.dtype) @ vectors_DE

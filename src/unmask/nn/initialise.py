"""Initial weights that several systems share."""

from __future__ import annotations

import torch
from torch import nn

from unmask.nn.embedding import Token
from unmask.nn.recurrent import Recurrent


def truncated_normal(model: nn.Module, std: float, generator: torch.Generator, *, cutoff: float = 2.0) -> None:
    """BERT's initialisation: weights from a normal with deviation `std`, truncated at ± 2 `std`; biases 0; the scales
    of norms 1 and their biases 0.

    cutoff  where to truncate, in deviations
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(module.weight, std=std, a=-cutoff * std, b=cutoff * std, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def uniform_linear(layer: nn.Linear, generator: torch.Generator) -> None:
    """Weights and biases from a uniform in +- 1 / sqrt(inputs), the default of PyTorch."""
    bound = layer.in_features**-0.5
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def rectified_normal(model: nn.Module, generator: torch.Generator) -> None:
    """Convolutions from a normal with variance 2 / (outputs of a filter), for layers with ReLU (He et al. 2015, section
    2.2, backward form); linear layers from a uniform in +- 1 / sqrt(inputs); biases 0; norms and their running
    statistics as new."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)


def xavier_gates(network: Recurrent, generator: torch.Generator) -> None:
    """Xavier's uniform for the matrices of each gate, and biases 0, except 1 for the forget gate of an LSTM, so that it
    keeps its state from the start (Gers et al. 2000; Jozefowicz et al. 2015)."""
    lstm = isinstance(network.kernel, nn.LSTM)
    with torch.no_grad():
        for name, parameter in network.kernel.named_parameters():
            gates = parameter.split(network.hidden)
            for gate in gates:
                if gate.dim() == 2:
                    nn.init.xavier_uniform_(gate, generator=generator)
                else:
                    nn.init.zeros_(gate)
            if lstm and name.startswith("bias_ih"):
                nn.init.ones_(gates[1])


def xavier_uniform(module: nn.Module, seed: int, *, padding: int | None) -> None:
    """Xavier's uniform (Glorot & Bengio 2010), with bias 1 for the forget gate of an LSTM. Token vectors have a length
    of about 1; that of the padding, if there is one, is zero."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, Recurrent):
            xavier_gates(part, generator)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, Token):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5, generator=generator)
            if padding is not None:
                with torch.no_grad():
                    part.weight[padding].zero_()

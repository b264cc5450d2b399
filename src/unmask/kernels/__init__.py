"""Kernels: the only room that knows processors. Each kernel has a plain form that computes the same result, and chooses
between the two by device and number format.

Layers, objectives and the trainer call kernels by name, and do not ask for the device. A plain form that is an equation
of a paper is defined where readers look for it, and is passed to its kernel: `nn.attention.attention`,
`nn.recurrent.Cell.step`, `objectives.cross_entropy.equation`. `tests/kernels/test_plain_forms.py` compares each
kernel with its plain form.
"""

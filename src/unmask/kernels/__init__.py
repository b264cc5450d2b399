"""Kernels: the one room that knows processors. Each has a plain form that computes the same, and decides by device and
number format which of the two runs.

Layers, objectives and the trainer call what is in here by name; none of them asks what it runs on. A plain form that is
an equation of a paper stands where a reader looks for it, and is handed to its kernel: `nn.attention.attention`,
`nn.recurrent.Cell.step`, `objectives.cross_entropy.equation`. `tests/kernels/test_plain_forms.py` compares each
kernel with its plain form.
"""

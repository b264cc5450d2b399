# %% [markdown]
# # A translator
# Trains an encoder–decoder with attention on pairs of texts, here numbers in words and in digits, and translates with
# it. Real pairs come from two aligned files, a table or a data set of the Hub; everything else stays the same.

# %%
import random

import unmask
from unmask.train.events import Evaluated

OUT, STEPS = "runs/examples/translator", 48
ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number):
    if number < 20:
        return ONES.split()[number]
    if number < 100:
        return TENS.split()[number // 10 - 2] + (f" {in_words(number % 10)}" if number % 10 else "")
    return f"{in_words(number // 100)} hundred" + (f" and {in_words(number % 100)}" if number % 100 else "")


numbers = random.Random(0).sample(range(1_000), 1_000)
pairs = [(in_words(number), " ".join(str(number))) for number in numbers]

# %% [markdown]
# A listener receives the events of the run: here, it keeps the score of every evaluation.

# %%
scores = []


def keep(event):
    if isinstance(event, Evaluated) and "exact" in event.numbers:
        scores.append((event.step, event.numbers["exact"]))


run = unmask.train(
    "seq2seq-attention",
    pairs=pairs[:900],
    dev=pairs[900:],
    out=OUT,
    steps=STEPS,
    metric="exact",
    listeners=[keep],
    overwrite=True,
    **{"vocabulary.kind": "word"},
)
print(run)
print(scores)

# %%
translate = unmask.Translator(run.folder)
print(translate)
for source, translation in zip(sources := [pair[0] for pair in pairs[-4:]], translate(sources), strict=True):
    print(f"{source:34} {translation}")

# %%
print(unmask.evaluate(run.folder, pairs=pairs[900:], metric="exact"))

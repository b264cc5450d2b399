# %% [markdown]
# # An encoder for a domain
# Pre-trains a small BERT on the text of one domain, here the language reference that is installed with Python, and
# asks it for masked words. The few steps here take seconds; a useful model takes some thousand.

# %%
from pydoc_data.topics import topics

import unmask

OUT, STEPS = "runs/examples/domain-encoder", 40

# %% [markdown]
# Any iterable of texts is data; so are files and folders. The texts become a corpus with a vocabulary of its own, of
# which a part is held out.

# %%
run = unmask.pretrain(
    "bert-tiny",
    topics.values(),
    out=OUT,
    steps=STEPS,
    sentences="none",  # masked tokens alone
    warm_start="ppmi",  # token vectors from the words that occur together
    corpus={"vocabulary_size": 2_000, "heldout": 0.1},
    overwrite=True,
)
print(run)

# %% [markdown]
# `Predictor` answers with the head that the model has: here, masked words.

# %%
fill = unmask.Predictor(run.folder, top=3)
for text in ("The [MASK] statement returns a value .", "An object is [MASK] if its value can change ."):
    guesses = fill(text)[0]["masks"][0]
    print(text, "->", ", ".join(f"{guess['token']} {guess['probability']:.2f}" for guess in guesses))

# %% [markdown]
# The folder opens in `transformers`, too: `AutoModelForMaskedLM.from_pretrained("runs/examples/domain-encoder")`.

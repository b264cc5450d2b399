# %% [markdown]
# # Looking inside
# What a model attends to, which of its word vectors are close, and which words decided an answer: as arrays, and as
# pages that work without a network. `unmask serve --model FOLDER` shows the same, and more, in a browser.

# %%
from pathlib import Path
from pydoc_data.topics import topics

import unmask
from unmask.serve.opened import open_model
from unmask.visualize import attention, words
from unmask.visualize.standalone import write

OUT, STEPS = Path("runs/examples/looking-inside"), 40
run = unmask.pretrain(
    "bert-tiny", topics.values(), out=OUT, steps=STEPS, sentences="none", warm_start="ppmi", overwrite=True,
    corpus={"vocabulary_size": 2_000},
)  # fmt: skip

# %% [markdown]
# Attention: for each layer and head, a matrix with a row for each token and the tokens that it reads.

# %%
model = open_model(run.folder)
text = "The function returns a value to the statement that called it ."
seen = model.reading(text)
first_layer_HTT = attention.weights(model.model, seen.batch, "encoder", layers=[0])[0]
tokens = seen.tokens
print(tokens, first_layer_HTT.shape)
for token, row in zip(tokens, first_layer_HTT.mean(0), strict=True):
    print(f"{token:12} reads {tokens[row.argmax()]:12} {row.max():.2f}")

# %% [markdown]
# Words: those whose vectors are close.

# %%
vectors = words.of_model(model.model, model.tokenizer)
for word in ("class", "string", "value"):
    print(word, "->", ", ".join(one["word"] for one in vectors.nearest([word], top=5)))

# %% [markdown]
# The same as pages: each is one file.

# %%
write(OUT / "attention.html", "Attention", model.attention(text))
write(OUT / "words.html", "Words", words.cloud(vectors, count=200))
print(*OUT.glob("*.html"))

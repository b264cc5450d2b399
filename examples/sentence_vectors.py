# %% [markdown]
# # Vectors of sentences
# Trains a sentence encoder on pairs of sentences that mean the same, and searches a small collection with it. The pairs
# are made up from synonyms; real ones are questions with their answers, titles with their texts, or translations.

# %%
import random

import unmask

OUT, STEPS, EPOCHS = "runs/examples/sentence-vectors", 30, 3
SUBJECTS = [("the doctor", "the physician"), ("a child", "a kid"), ("the firm", "the company"), ("the car", "the auto")]
VERBS = [("begins", "starts"), ("buys", "purchases"), ("fixes", "repairs"), ("finds", "discovers"), ("ends", "stops")]
OBJECTS = [("the work", "the job"), ("a home", "a house"), ("the error", "the mistake"), ("a present", "a gift")]


def pairs(count, seed):
    """Two sentences that mean the same, in other words."""
    draw = random.Random(seed)
    for _ in range(count):
        parts = [draw.choice(choices) for choices in (SUBJECTS, VERBS, OBJECTS)]
        yield tuple(" ".join(draw.choice(synonyms) for synonyms in parts) for _ in range(2))


train = [{"text1": one, "text2": other} for one, other in pairs(600, seed=1) if one != other]

# %%
encoder = unmask.pretrain(
    "bert-tiny", [text for row in train for text in row.values()], out=f"{OUT}-encoder", steps=STEPS, sentences="none",
    overwrite=True,
)  # fmt: skip
run = unmask.finetune(
    encoder.folder, train, task="embedding", out=OUT, epochs=EPOCHS, learning_rate=1e-3, seeds=1, allow_overlap=True,
    overwrite=True,
)  # fmt: skip
print(repr(run))

# %% [markdown]
# An `Embedder` returns an array with a row for each text.

# %%
embed = unmask.Embedder(run.folder)
print(embed, embed(["the doctor buys a home"]).shape)

# %%
collection = ["the company starts the job", "the physician purchases a house", "a kid discovers the mistake"]
query = "the doctor buys a home"
for score, text in sorted(zip(embed.similarity([query], collection)[0], collection, strict=True), reverse=True):
    print(f"{score:.2f}  {text}")

# %% [markdown]
# # A classifier of messages
# Trains a model on labelled messages to a help desk, scores it on messages that it has not seen, and uses it in a grid
# search of scikit-learn. The messages are made up from a few phrases; put your own rows in their place.

# %%
import random

from sklearn.model_selection import GridSearchCV

import unmask

OUT, STEPS, EPOCHS = "runs/examples/classifier", 30, 3
PHRASES = {
    "billing": ["I was charged twice", "the invoice is wrong", "my card was declined", "I want a refund"],
    "delivery": ["the parcel has not arrived", "the courier left it outside", "tracking shows no change", "it is late"],
    "technical": ["the app crashes at start", "I cannot log in", "the page shows an error", "the update failed"],
}
OPENINGS = ["Hello,", "Good morning,", "Hi there,", "Dear team,", "Again:"]
CLOSINGS = ["Please help.", "What can I do?", "Thanks in advance.", "This is urgent.", "Since Monday."]


def messages(count, seed):
    """Rows with a text and a label; one in ten labels is wrong, as in real data."""
    draw = random.Random(seed)
    for number in range(count):
        label = draw.choice(list(PHRASES))
        text = f"{draw.choice(OPENINGS)} {draw.choice(PHRASES[label])} (order {number}). {draw.choice(CLOSINGS)}"
        yield {"text": text, "label": label if draw.random() < 0.9 else draw.choice(list(PHRASES))}


train, test = list(messages(400, seed=1)), list(messages(100, seed=2))

# %% [markdown]
# A pre-trained encoder, as `domain_encoder.py` makes one: here from the same messages, without their labels. A folder
# of `transformers`, or a name on the Hub, does as well.

# %%
encoder = unmask.pretrain(
    "bert-tiny", [row["text"] for row in train], out=f"{OUT}-encoder", steps=STEPS, sentences="none", overwrite=True
)

# %% [markdown]
# A tenth of the rows chooses the best weights; the test rows are scored at the end, beside what needs no model.

# %%
run = unmask.finetune(
    encoder.folder, train, test=test, out=OUT, epochs=EPOCHS, learning_rate=1e-3, seeds=1, overwrite=True
)
print(run)

# %%
classify = unmask.Predictor(run.folder)
print(classify)
for answer in classify(["my card was charged for a parcel", "I cannot open the app"]):
    print(f"{answer['label']:10} {answer['probability']:.2f}")

# %%
scores = unmask.evaluate(run.folder, messages(50, seed=3))
print(f"accuracy {scores['accuracy']:.2f}, without a model {scores.baseline['accuracy']:.2f}")

# %% [markdown]
# The same as an estimator.

# %%
search = GridSearchCV(
    unmask.TextClassifier(encoder.folder, epochs=1, fields={"least_steps": 1}), {"learning_rate": [3e-4, 1e-3]}, cv=2
)
search.fit([row["text"] for row in train[:60]], [row["label"] for row in train[:60]])
print(search.best_params_, f"{search.best_score_:.2f}")

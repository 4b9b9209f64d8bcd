"""From a table to a service
=========================

You have readings of machines in one long Parquet file, with gaps, and a word for the state of each
machine. You want a model that tells the state, chosen by cross-validation, in one file that another
process loads and serves.
"""

# %%
# The table
# ---------
#
# One row per reading, in any order. Here it is made up: in pumps that are worn the flow follows the
# pressure later, pumps that leak lose pressure when the flow is large, and one reading in twenty is
# missing.

import json
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

import polyattn as pa

rng = np.random.default_rng(0)
READINGS = ["pressure", "flow", "current"]


def pump(number, state):
    """The readings of one pump, 30 to 60 seconds."""
    seconds = np.arange(rng.integers(30, 60))
    phase = rng.uniform(0, 2 * np.pi) + 0.7 * seconds
    later = 1.6 if state == "worn" else 0.8
    swing = np.column_stack([np.sin(phase), np.sin(phase - later), np.cos(phase)])
    if state == "leaking":
        swing[:, 0] -= 0.6 * swing[:, 1]
    noisy = 20 + 3 * swing + rng.standard_normal(swing.shape)
    return pd.DataFrame(noisy, columns=READINGS).assign(pump=number, second=seconds, state=state)


states = rng.choice(["healthy", "worn", "leaking"], size=240, p=[0.5, 0.3, 0.2])
table = pd.concat([pump(f"P{i:03}", state) for i, state in enumerate(states)])
table[READINGS] = table[READINGS].mask(rng.random((len(table), 3)) < 0.05)
table.sample(frac=1, random_state=0).to_parquet("readings.parquet")
print(table.head(3).to_string(index=False))

# %%
# Sequences out of rows
# ---------------------

data = pa.from_long(
    pd.read_parquet("readings.parquet"), sequence="pump", order="second",
    tokens=READINGS, targets="state", missing="keep",
)  # fmt: skip
X, y = data
print(X)
X_train, X_test, y_train, y_test = train_test_split(list(X), y, random_state=0, stratify=y)

# %%
# Without an imputer the gaps are refused, by name.

try:
    pa.LinearAttentionClassifier().fit(X_train, y_train)
except pa.errors.InvalidInput as error:
    print(error)

# %%
# A pipeline, chosen by cross-validation
# --------------------------------------
#
# Sums over all tokens, means, or sums in which the past fades; and how large the penalty is.

pipeline = make_pipeline(
    pa.SequenceImputer("previous"),
    pa.SequenceScaler(),
    pa.LinearAttentionClassifier(loss="logistic"),
)
forms = [pa.Form(bias=True), pa.Form(bias=True, mean=True), pa.Form(bias=True, decay=0.95)]
grid = {"linearattentionclassifier__form": forms, "linearattentionclassifier__ridge": [0.1, 1, 10]}
search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=3).fit(X_train, y_train)
model = search.best_estimator_
print(search.best_params_["linearattentionclassifier__form"])
print(model[-1].outcome_)
share = model.score(X_test, y_test)
print(f"accuracy on pumps that were held out: {share:.2f}")
assert share > 0.85

figure, axes = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
ConfusionMatrixDisplay.from_estimator(model, X_test, y_test, ax=axes, colorbar=False, cmap="Greens")
axes.set_title("Pumps that were held out", loc="left")
plt.savefig("table_to_service.png")

# %%
# One file, another process
# -------------------------
#
# Imputer, scaler, labels and layer are in one file, and no pickle is. A process that has never seen
# the data loads it and answers in JSON; what it answers is the same, bit for bit.

pa.save(model, "pumps.safetensors")
np.savez("new.npz", *X_test[:5])
service = """
import json, numpy as np, polyattn as pa
model = pa.load("pumps.safetensors")
with np.load("new.npz") as given:
    X = [given[name] for name in given.files]
print(json.dumps({"labels": model.predict(X).tolist(), "chances": model.predict_proba(X).tolist()}))
"""
command = [sys.executable, "-c", service]
answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603
print(answer["labels"])
assert answer["labels"] == model.predict(X_test[:5]).tolist()
assert answer["chances"] == model.predict_proba(X_test[:5]).tolist()

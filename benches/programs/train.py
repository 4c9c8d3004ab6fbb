"""The machine-learning program of the benchmark: reads a small CSV, trains, writes three artifacts.

Once the libraries are imported it works for a few milliseconds, so that what is measured is the
start and the way of the results, not scikit-learn.
"""

import json
import os
import pickle
from pathlib import Path

import pandas as pd
from sklearn.tree import DecisionTreeClassifier

dataset = Path(os.environ["FUMEHOOD_DATASET"])
output = Path(os.environ["FUMEHOOD_OUTPUT"])
output.mkdir(exist_ok=True)

frame = pd.read_csv(dataset / "train.csv")
features, target = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(features, target)
predictions = model.predict(features)
accuracy = float((predictions == target).mean())

pd.DataFrame({"prediction": predictions}).to_csv(output / "predictions.csv", index=False)
with open(output / "model.pkl", "wb") as file:
    pickle.dump(model, file)
summary = {"success": True, "model_path": "model.pkl", "metrics": {"accuracy": accuracy}}
(output / "summary.json").write_text(json.dumps(summary))
print(f"accuracy {accuracy:.3f}")

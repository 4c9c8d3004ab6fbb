"""Learns to predict a column of a table, and says how well on rows that it has not learned from.

Writes predictions.csv, models/model.joblib and summary.json. The same data gives the same result.
"""

import json
import math
import os
from pathlib import Path

import joblib
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
)
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

FACTS = {}

SEED = 0
HELD_OUT = 0.2


def read(path):
    return pd.read_csv(Path(os.environ["FUMEHOOD_DATASET"]) / path, sep=FACTS["delimiter"])


def make_model(classification):
    # Trees need no scaling and take missing numbers as they are; only text has to become numbers.
    columns = make_column_transformer(
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            make_column_selector(dtype_exclude="number"),
        ),
        remainder="passthrough",
    )
    boosting = HistGradientBoostingClassifier if classification else HistGradientBoostingRegressor
    return make_pipeline(columns, boosting(random_state=SEED))


def measure(classification, truth, predicted):
    if classification:
        metrics = {
            "accuracy": accuracy_score(truth, predicted),
            "f1": f1_score(truth, predicted, average="macro"),
        }
    else:
        metrics = {
            "mae": mean_absolute_error(truth, predicted),
            "rmse": math.sqrt(mean_squared_error(truth, predicted)),
            "r2": r2_score(truth, predicted),
        }
    # JSON has no NaN: a metric that could not be computed is left out.
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def main():
    output = Path(os.environ["FUMEHOOD_OUTPUT"])
    frame = read(FACTS["training"])
    target_name = FACTS.get("target", frame.columns[-1])
    frame = frame.dropna(subset=[target_name])
    features, target = frame.drop(columns=[target_name]), frame[target_name]
    classification = FACTS["task_type"] != "regression"
    if classification and pd.api.types.is_float_dtype(target):
        target = target.astype(str)
    print(f"{len(frame)} rows, {features.shape[1]} features, target {target_name}")

    # A class with a single row cannot be on both sides of the split.
    stratify = target if classification and target.value_counts().min() > 1 else None
    fit_x, held_x, fit_y, held_y = train_test_split(
        features, target, test_size=HELD_OUT, random_state=SEED, stratify=stratify
    )
    model = make_model(classification).fit(fit_x, fit_y)
    held_predictions = model.predict(held_x)
    metrics = measure(classification, held_y, held_predictions)
    print(", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))

    if "held_out" in FACTS:
        # What is delivered has learned from every row.
        model = make_model(classification).fit(features, target)
        predictions = model.predict(read(FACTS["held_out"])[features.columns])
    else:
        predictions = held_predictions
    pd.DataFrame({"prediction": predictions}).to_csv(output / "predictions.csv", index=False)

    model_path = Path("models") / "model.joblib"
    (output / model_path).parent.mkdir(parents=True, exist_ok=True)
    joblib.dump(model, output / model_path)
    summary = {"success": True, "model_path": model_path.as_posix(), "metrics": metrics}
    (output / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

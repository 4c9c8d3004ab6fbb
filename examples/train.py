"""Trains a model on a tabular data set and predicts its held-out part.

Reads train.csv, whose column `target` is what to predict, and test.csv, which
lacks it, from $FUMEHOOD_DATASET. Writes to $FUMEHOOD_OUTPUT:

    predictions.csv       one prediction for each row of test.csv, in its order
    models/model.joblib   the fitted pipeline
    summary.json          success, where the model is, and its metrics

Classification or regression is decided by the target. The metrics come from a
part of train.csv that the measured model has not seen. The same data gives the
same result.
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
    r2_score,
    root_mean_squared_error,
)
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

TARGET = "target"
SEED = 0
VALIDATION_SHARE = 0.2
# More distinct numbers than this, and the target is a quantity, not a class.
MAX_NUMERIC_CLASSES = 20


def is_classification(target):
    if not pd.api.types.is_numeric_dtype(target) or pd.api.types.is_bool_dtype(target):
        return True
    whole_numbers = bool((target % 1 == 0).all())
    return whole_numbers and target.nunique() <= MAX_NUMERIC_CLASSES


def make_model(classification):
    # Trees need no scaling and take missing numbers as they are; only text
    # has to become numbers.
    columns = make_column_transformer(
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            make_column_selector(dtype_exclude="number"),
        ),
        remainder="passthrough",
    )
    boosting = HistGradientBoostingClassifier if classification else HistGradientBoostingRegressor
    return make_pipeline(
        columns,
        boosting(learning_rate=0.05, max_iter=150, l2_regularization=1.0, random_state=SEED),
    )


def measure(classification, truth, predicted):
    if classification:
        metrics = {
            "accuracy": accuracy_score(truth, predicted),
            "f1_macro": f1_score(truth, predicted, average="macro"),
        }
    else:
        metrics = {
            "rmse": root_mean_squared_error(truth, predicted),
            "mae": mean_absolute_error(truth, predicted),
            "r2": r2_score(truth, predicted),
        }
    # JSON has no NaN: a metric that could not be computed is left out.
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def main():
    dataset = Path(os.environ["FUMEHOOD_DATASET"])
    output = Path(os.environ["FUMEHOOD_OUTPUT"])

    train = pd.read_csv(dataset / "train.csv").dropna(subset=[TARGET])
    test = pd.read_csv(dataset / "test.csv")
    features, target = train.drop(columns=TARGET), train[TARGET]
    classification = is_classification(target)
    kind = "classification" if classification else "regression"
    print(f"{len(train)} rows, {features.shape[1]} features, {kind}")

    # A class with a single row cannot be on both sides of the split.
    stratify = target if classification and target.value_counts().min() > 1 else None
    fit_x, held_x, fit_y, held_y = train_test_split(
        features, target, test_size=VALIDATION_SHARE, random_state=SEED, stratify=stratify
    )
    model = make_model(classification).fit(fit_x, fit_y)
    metrics = measure(classification, held_y, model.predict(held_x))
    print("validation:", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))

    # What is delivered has learned from every row.
    model = make_model(classification).fit(features, target)
    predictions = model.predict(test[features.columns])
    pd.DataFrame({"prediction": predictions}).to_csv(output / "predictions.csv", index=False)
    print(f"predicted {len(predictions)} rows")

    model_path = Path("models") / "model.joblib"
    (output / model_path).parent.mkdir(parents=True, exist_ok=True)
    joblib.dump(model, output / model_path)
    summary = {"success": True, "model_path": model_path.as_posix(), "metrics": metrics}
    (output / "summary.json").write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

"""Learns to predict a column of a table."""

import os
from pathlib import Path

import pandas as pd

FACTS = {}

dataset = Path(os.environ["FUMEHOOD_DATASET"])
frame = pd.read_csv(dataset / FACTS["training"], sep=FACTS["delimiter"])
print(f"{len(frame)} rows")
target = frame["targt"]
features = frame.drop(columns=["targt"])

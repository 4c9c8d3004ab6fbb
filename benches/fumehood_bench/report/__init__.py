"""The results: a JSON document with everything, a Markdown table and a chart made from it."""

import json
import re
from pathlib import Path

from . import chart, table

# Lists of numbers, such as samples, are long; one line each keeps the document readable.
NUMBER_LIST = re.compile(r"\[\s+(-?[0-9.]+(?:,\s+-?[0-9.]+)*)\s+\]")


def write(document: dict, directory: Path) -> list[Path]:
    """Writes all three; gives their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / f"{document['date'][:10]}.json"
    data.write_text(as_text(document), encoding="utf-8")
    text = directory / "latest.md"
    text.write_text(table.markdown(document, data.name), encoding="utf-8")
    written = [data, text]
    if document["cells"]:
        picture = directory / "latest.svg"
        picture.write_text(chart.svg(document), encoding="utf-8")
        written.append(picture)
    return written


def as_text(document: dict) -> str:
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return NUMBER_LIST.sub(lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n"

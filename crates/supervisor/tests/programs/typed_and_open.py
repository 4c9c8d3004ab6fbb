"""A library's cache refers to a class of the program, and a file is never closed."""

from typing import Dict, Optional


class Row:
    def __init__(self, value):
        self.value = value

    def __del__(self):
        print("row", self.value, name)


def first(rows: Dict[str, Row]) -> Optional[Row]:
    return next(iter(rows.values()), None)


name = "a global that a finaliser uses"
file = open("out/unclosed.txt", "w")
file.write("every byte of it")
rows = {"a": Row(1)}
print(first(rows).value)

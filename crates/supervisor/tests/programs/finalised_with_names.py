"""Finalisers at the end find what they use."""

import json


class Report:
    def __init__(self, path):
        self.path = path

    def __del__(self):
        print("report", SETTINGS["title"], self.path, json.dumps(totals()))


def totals():
    return sorted(SETTINGS)


SETTINGS = {"title": "t", "other": 1}
report = Report("x")
again = Report("y")
again.itself = again

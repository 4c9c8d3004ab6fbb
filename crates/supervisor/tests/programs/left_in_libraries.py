"""Things of the program that libraries refer to at its end."""

import atexit
import logging
import warnings


class ToFile(logging.Handler):
    def __init__(self):
        super().__init__()
        self.file = open("out/handled.txt", "w")

    def emit(self, record):
        self.file.write(record.getMessage())


def show(message, *rest):
    shown.write(str(message))


def last():
    print("last", len(kept))


shown = open("out/warned.txt", "w")
kept = [open("out/kept.txt", "w")]
kept[0].write("kept")
logging.getLogger().addHandler(ToFile())
logging.getLogger().warning("handled")
warnings.showwarning = show
warnings.warn("warned")
atexit.register(last)
raise ValueError("the end")

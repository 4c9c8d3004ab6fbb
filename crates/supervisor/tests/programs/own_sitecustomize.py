"""A file of the program's that has the name of the one that made the interpreter wait."""
import sys

print("sitecustomize" in sys.modules)
import sitecustomize

print(sitecustomize.__file__, sitecustomize.WHOSE)

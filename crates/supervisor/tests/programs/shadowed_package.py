"""A package below the script's directory that comes first once the script has said so."""
import sys

sys.path.insert(0, "library")
import decimal

print(decimal.__file__, decimal.WHOSE)

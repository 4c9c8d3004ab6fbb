import sys

sys.exit("a message for the error stream")

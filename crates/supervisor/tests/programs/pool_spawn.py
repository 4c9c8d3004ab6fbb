import multiprocessing
import os
import sys

print("imported as", __name__, flush=True)


def work(number):
    return number * number, __name__, sys.argv, sys.path, "PYTHONPATH" in os.environ


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, range(5)))

import multiprocessing
import os
import sys


def work(number):
    return number * number, __name__, sys.argv, "preload" in str(sys.path), "PYTHONPATH" in os.environ


if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        print(pool.map(work, range(5)))

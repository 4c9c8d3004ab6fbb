import multiprocessing
import os
import sys


def work(number):
    return number * number, __name__, "preload" in str(sys.path), "PYTHONPATH" in os.environ


if __name__ == "__main__":
    print(multiprocessing.get_start_method(), multiprocessing.current_process().name, multiprocessing.active_children())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(5)))

import concurrent.futures
import os

with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(list(pool.map(abs, range(-5, 5))))
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(abs, range(-5, 5))))
        print(os.getpid() not in set(pool.map(os.getpgid, [0] * 4)))

"""Time: processes that are always inside a system call of the file system.

Attacks the kill, which waits for uninterruptible calls: flushing, direct reads of the data set,
reading it whole, allocating and giving back.
"""

import os
import threading


def flush():
    file = os.open(f".cache/flush{os.getpid()}", os.O_CREAT | os.O_RDWR)
    while True:
        os.pwrite(file, bytes(1 << 20), 0)
        os.fsync(file)
        os.posix_fallocate(file, 0, 2 << 20)
        os.ftruncate(file, 0)


def read():
    while True:
        for flags in (os.O_RDONLY, os.O_RDONLY | os.O_DIRECT, os.O_RDONLY | os.O_SYNC):
            try:
                file = os.open("/data/large.bin", flags)
            except OSError:
                continue
            try:
                while os.read(file, 1 << 20):
                    pass
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass
            finally:
                os.close(file)


for work in (flush, read) * 3:
    if os.fork() == 0:
        for _ in range(3):
            threading.Thread(target=work).start()
        work()
print("blocked", flush=True)
read()

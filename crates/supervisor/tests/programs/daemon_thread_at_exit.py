"""A thread that nobody waits for uses names of the program until the very end."""

import threading
import time


def work():
    while True:
        values.append(len(values) % 10)
        time.sleep(0.0005)


values = []
file = open("out/unclosed.txt", "w")
file.write("every byte of it")
threading.Thread(target=work, daemon=True).start()
time.sleep(0.02)
print("end")

import threading
import time


def slowly():
    for number in range(5):
        time.sleep(0.05)
        print("still", number, flush=True)


threading.Thread(target=slowly).start()
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print("main is over")

"""What happens at the very end: objects of the program are finalised, whatever was preloaded."""

import atexit
import gc
import json
import weakref


class Closing:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("closed", self.name)


class Node:
    pass


kept = Closing("global")
node = Node()
node.itself = node
node.closing = Closing("in a cycle")
in_library = json.kept = Closing("in a library, taken back")
del json.kept, in_library
weakref.finalize(kept, print, "finalised")
atexit.register(print, "exit function of the program")
del node
print("collected", gc.collect() > 0)
print("end")

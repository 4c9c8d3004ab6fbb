"""Fork bomb: children that sleep, as many as there can be, and on trying until the time is up.

Attacks the process table of the host, and the deadline: every child has to be gone with the run.
"""

import errno
import json
import os
import time

MOST = 400  # enough to show that nothing refuses


def child():
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


children, refused = 0, "nothing"
while children < MOST and refused == "nothing":
    try:
        child()
        children += 1
    except OSError as error:
        refused = errno.errorcode[error.errno]
print(json.dumps({"children": children, "refused": refused}), flush=True)
while refused != "nothing":
    try:
        child()
    except OSError:
        pass

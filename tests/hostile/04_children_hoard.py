"""Memory: one child after the other eats it all and offers itself to the kernel; the parent succeeds.

Attacks the report: an exit code of 0 must not hide that children were killed.
"""

import json
import os

ends = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
        held = []
        while True:
            held.append(bytearray(b"x") * (1 << 20))
    status = os.waitpid(pid, 0)[1]
    ends.append(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
print(json.dumps({"killed": ends.count(-9)}))

"""Memory: workspace, /tmp, /dev/shm and heap are filled together.

Attacks the sum: each has a size of its own, and files in memory have to count as memory.
"""

import json

for place in ("/work/.cache/fill", "/tmp/fill", "/dev/shm/fill"):
    with open(place, "wb") as file:
        file.write(bytes(30 << 20))
held = []
for _ in range(400):
    held.append(bytearray(b"x") * (1 << 20))
print(json.dumps({"held": len(held)}))

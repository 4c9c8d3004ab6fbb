"""Memory: a list of byte arrays that grows.

Attacks the host's memory; only this program may be killed for it.
"""

import json

MOST = 400  # MiB, more than the limit and little for a host

held = []
for _ in range(MOST):
    held.append(bytearray(b"x") * (1 << 20))
print(json.dumps({"held": len(held)}))

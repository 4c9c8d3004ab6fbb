"""Takes more memory than there is, for sandboxes that end as a whole when that happens: row 35."""

import json
import sys

from doctor import resources

with open("doctor/settings.json") as file:
    SETTINGS = json.load(file)

print(json.dumps({"armed": True}), flush=True)
print(json.dumps({"memory": resources.exhaust_memory(SETTINGS["memory_bytes"])}), flush=True)
sys.exit(0)

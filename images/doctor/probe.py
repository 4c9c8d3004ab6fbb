"""Looks at a sandbox from inside, for `fumehood doctor`.

Prints what it saw as one line of JSON and judges nothing: what is good is decided outside, by the
daemon (src/doctor/controls). Runs as any other program would, with nothing that others do not have.
Whatever it tries is bounded, so that it ends well even where no wall holds.
"""

import json
import sys

from doctor import files, identity, kernel, network, resources

with open("doctor/settings.json") as file:
    SETTINGS = json.load(file)

SEEN = {
    # First, since its neighbour does not live long.
    "network": network.seen(SETTINGS),
    "identity": identity.seen(),
    "kernel": kernel.seen(SETTINGS),
    "files": files.seen(SETTINGS),
    "resources": resources.seen(SETTINGS),
}
files.leave_artifacts()
print(json.dumps(SEEN), flush=True)
if SETTINGS["exhaust_memory"]:
    # Last: where the walls are another kernel's, the whole sandbox may end here.
    print(json.dumps({"memory": resources.exhaust_memory(SETTINGS["memory_bytes"])}), flush=True)
sys.exit(0)

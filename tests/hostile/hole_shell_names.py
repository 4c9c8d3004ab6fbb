"""llm-sandbox 147 and 148: a policy that nobody called, and paths that went through a shell as root.

The names of its input files are commands; they have to arrive as names.
"""

import json
import os

given = sorted(name for name in os.listdir(".") if name.startswith("given"))
print(json.dumps({"given": len(given), "pwned": sum("pwned" in files for _, _, files in os.walk("/tmp")) + os.path.exists("pwned")}))
for name in given:
    os.rename(name, os.path.join("out", name))

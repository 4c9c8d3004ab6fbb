"""CVE-2026-5752 (Terrarium), CVE-2025-68668, 2026-0863, 2026-49444 (n8n): a jail inside the interpreter, left by its objects.

Climbs everything that an interpreter has: classes, frames, errors, modules; there is nothing of ours to be found.
"""

import gc
import json
import sys


def frames():
    frame, count = sys._getframe(), 0
    while frame:
        count += frame.f_code.co_filename not in (__file__, "script.py", "<string>")
        frame = frame.f_back
    return count


def from_error():
    try:
        (lambda: missing)()  # noqa: F821
    except NameError as error:
        context, count = error.__traceback__.tb_frame, 0
        while context:
            count += "fumehood" in context.f_code.co_filename
            context = context.f_back
        return count


def secrets():
    needle = "CANARY" + "-of"
    found = 0
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            for value in list(thing.values()):
                found += isinstance(value, str) and needle in value
    return found


popen = [kind for kind in ().__class__.__base__.__subclasses__() if kind.__name__ == "Popen"]
told = {
    "foreign frames": frames(), "frames of an error": from_error(), "secrets": secrets(),
    "our modules": sum("fumehood" in name for name in sys.modules), "hooks": sum(hook is not None for hook in (sys.gettrace(), sys.getprofile())),
    # There is no jail here to leave: what it finds, it could have imported.
    "classes": len(popen) <= 1,
}
print(json.dumps(told))

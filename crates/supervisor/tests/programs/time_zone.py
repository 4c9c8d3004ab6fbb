import os
import time
import tempfile

print(time.tzname, time.timezone, time.localtime(0), tempfile.gettempdir())
os.environ["TZ"] = "UTC-3"
time.tzset()
print(time.tzname)

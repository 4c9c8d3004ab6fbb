import faulthandler
import os
import signal

print(faulthandler.is_enabled(), flush=True)
faulthandler.enable()
os.kill(os.getpid(), signal.SIGSEGV)

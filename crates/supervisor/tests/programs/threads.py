import os
import threading

print([(thread.name, thread.is_alive()) for thread in threading.enumerate()], threading.active_count(), threading.main_thread().name, os.listdir("/proc/self/task") == [str(os.getpid())])
print(threading.current_thread() is threading.main_thread(), threading.get_ident() == threading.main_thread().ident)
print(threading.get_native_id() == os.getpid(), threading.stack_size(), threading.Thread().name)

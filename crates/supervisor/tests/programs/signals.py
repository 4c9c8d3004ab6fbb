import signal

print([(number.name, signal.getsignal(number)) for number in sorted(signal.valid_signals()) if isinstance(number, signal.Signals)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1))
print([line for line in open("/proc/self/status").read().splitlines() if line.startswith("Sig") and "SigQ" not in line])

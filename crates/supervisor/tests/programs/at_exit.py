import atexit

print(atexit._ncallbacks() >= 0)
atexit.register(print, "registered first, runs last")
atexit.register(lambda: 1 / 0)
atexit.register(print, "registered last, runs first")
print("main is over")

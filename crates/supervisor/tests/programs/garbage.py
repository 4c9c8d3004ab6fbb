import gc

print(gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.garbage, gc.get_debug())

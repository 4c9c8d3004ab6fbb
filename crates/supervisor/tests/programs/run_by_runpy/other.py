print(__name__, __file__, globals().get("given"))
result = 42
z_last = "last"

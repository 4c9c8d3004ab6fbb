import inspect
import linecache


def documented(x: int = 1) -> int:
    """Has a source."""
    return x  # and a comment


print(inspect.getsource(documented), inspect.signature(documented), inspect.getfile(documented))
print(linecache.getline(__file__, 5), inspect.stack()[0][1:4], inspect.getmodule(documented))

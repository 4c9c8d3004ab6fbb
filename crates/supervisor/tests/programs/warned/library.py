import warnings


def warn():
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    warnings.warn("at the library", UserWarning)

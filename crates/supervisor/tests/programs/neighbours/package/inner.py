from . import __name__ as _parent


def relative():
    return _parent

import importlib

import helpers
from package import inner
from package.inner import relative

print(helpers.__file__, helpers.VALUE, inner.__name__, inner.__package__, relative())
helpers.VALUE = 2
print(importlib.reload(helpers).VALUE)
from . import helpers as again

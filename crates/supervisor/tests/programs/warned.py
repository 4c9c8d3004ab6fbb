import warnings

import library

print(warnings.filters)
warnings.warn("for the user")
warnings.warn("old", DeprecationWarning)
library.warn()
library.warn()
open("script.py")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    library.warn()
    print(len(caught), caught[0].filename)

"""Everything that a plain start leaves in the interpreter; compared without preloaded modules."""
import sys

print(list(sys.modules))
print(list(sys.path_importer_cache), sys.path, sys.argv, sys.warnoptions, sys._xoptions)
print(sys.flags, sys.implementation, sys.hash_info, sys.float_repr_style, sys.int_info)
print(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.platlibdir, sys.pycache_prefix, sys.dont_write_bytecode)
import site

print(site.ENABLE_USER_SITE, site.USER_SITE, site.USER_BASE, site.PREFIXES)
import warnings

print(warnings.filters)

"""Files that have the name of a module and are none."""
import json

print(json.__file__, open("json.txt").read(), open("decimal/table.csv").read())

import decimal
import fractions
import json
import sqlite3
import statistics

print(decimal.getcontext(), decimal.Decimal(1) / 7)
print(fractions.Fraction(1, 3), statistics.mean([1, 2, 4]))
print(json.dumps({"b": 1.5, "a": [None, True]}, sort_keys=True))
connection = sqlite3.connect("out/table.sqlite")
connection.execute("create table t (x)")
connection.executemany("insert into t values (?)", [(number,) for number in range(10)])
connection.commit()
print(connection.execute("select sum(x) from t").fetchall())

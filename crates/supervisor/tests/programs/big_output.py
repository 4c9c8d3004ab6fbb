import sys

for number in range(30_000):
    print(number, "out")
    if number % 10 == 0:
        print(number, "err", file=sys.stderr)

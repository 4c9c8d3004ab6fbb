import json


class Mine(Exception):
    pass


def parse():
    json.loads("{broken")


try:
    parse()
except ValueError as error:
    raise Mine("with a cause") from error

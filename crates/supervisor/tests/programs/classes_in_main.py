import copy
import dataclasses
import pickle
import pickletools


@dataclasses.dataclass(order=True, frozen=True)
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list)


point = Point(1, [2])
data = pickle.dumps(point)
pickletools.dis(data)
print(pickle.loads(data) == point, copy.deepcopy(point), Point.__module__, Point.__qualname__)
try:
    pickle.dumps(lambda: None)
except Exception as error:
    print(type(error), error)

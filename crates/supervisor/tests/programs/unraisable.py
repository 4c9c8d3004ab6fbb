class Failing:
    def __del__(self):
        raise ValueError("in __del__")


failing = Failing()
del failing
at_exit = Failing()
print("over")

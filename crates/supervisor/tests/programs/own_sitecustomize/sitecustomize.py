WHOSE = "the program's"
print("imported by", __name__)

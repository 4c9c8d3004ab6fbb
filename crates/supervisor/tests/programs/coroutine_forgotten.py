async def never():
    pass


never()
print("over")

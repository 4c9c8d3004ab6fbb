import asyncio


async def work(number):
    await asyncio.sleep(0.01 * number)
    return number * number


async def main():
    print(await asyncio.gather(*(work(number) for number in range(5))))
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    print(await process.communicate(), process.returncode)
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)


asyncio.run(main())

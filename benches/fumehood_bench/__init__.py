"""The public benchmark of fumehood: what a run costs, beside other ways to run a Python program."""

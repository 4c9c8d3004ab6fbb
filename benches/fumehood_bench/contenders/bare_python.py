"""A subprocess of the host's interpreter: what fumehood replaces, and no isolation at all."""

from ..programs import Outcome, Program
from .base import Contender, environment
from .commands import output_of


class BarePython(Contender):
    name = "bare-python"
    title = "bare `python3` subprocess"
    isolation = "none: the host's user, files and network"
    note = "The interpreter itself, not a shim, with the wheels of the image."

    def run(self, program: Program) -> Outcome:
        output = self.context.output_directory()
        command = [str(self.context.places.bare_python), "-c", program.code]
        variables = environment(str(program.dataset), str(output))
        return Outcome(output_of(command, cwd=output, env=variables), output)

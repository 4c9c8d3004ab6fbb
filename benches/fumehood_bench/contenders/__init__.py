"""The contenders, in the order in which they are shown."""

from .bare_python import BarePython
from .base import Contender, Context, Unavailable
from .docker_exec import DockerExec
from .docker_run import DockerRun
from .engine_loop import EngineLoop
from .fumehood import FumehoodCold, FumehoodPreloaded, FumehoodWarm
from .llm_sandbox_library import LlmSandbox, LlmSandboxPool

ALL: tuple[type[Contender], ...] = (
    BarePython,
    DockerRun,
    DockerExec,
    EngineLoop,
    LlmSandbox,
    LlmSandboxPool,
    FumehoodCold,
    FumehoodWarm,
    FumehoodPreloaded,
)

__all__ = ["ALL", "Contender", "Context", "Unavailable"]

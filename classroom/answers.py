"""Run the student's cells and call their functions, inside a sandbox. What is reported may be a lie: `judge` checks."""

import io
import linecache
import sys
import traceback
from types import ModuleType

from classroom.transcript import RecordingRunner
from lab.check.blanks import before_running
from lab.check.executor import InProcessExecutor
from lab.check.inputs import Frozen


class NoShell:
    """Stands for IPython in cells that call for it: whatever they ask, nothing happens."""

    def __getattr__(self, name: str) -> "NoShell":
        return self

    def __call__(self, *arguments, **options) -> "NoShell":
        return self


class Answers:
    """A notebook's namespace, in which cells run in order and functions are called."""

    def __init__(self):
        self.module = ModuleType("__main__")
        vars(self.module).update(get_ipython=NoShell(), display=print)
        sys.modules["__main__"] = self.module
        self.runner: RecordingRunner | None = None
        self.executor: InProcessExecutor | None = None

    def define(self, file: str, source: str) -> str:
        """Run a cell, whose code goes by the name `file`. Return what went wrong, "" if nothing did."""
        linecache.cache[file] = (len(source), None, io.StringIO(source).readlines(), file)
        try:
            exec(compile(python_of(source), file, "exec", dont_inherit=True), vars(self.module))
        except BaseException as error:
            places = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
            line = places[-1] if places else getattr(error, "lineno", None)
            return f"{type(error).__name__}{f' at line {line}' if line else ''}: {getattr(error, 'msg', error)}"
        return ""

    def choose(self, name: str, allows: tuple[str, ...]) -> dict | None:
        """Take the function called `name` as the one to run. Return what speaks against that at once."""
        function = vars(self.module).get(name)
        if function is None:
            return {"reason": "missing", "message": f"there is no function `{name}`.", "cause": ""}
        finding = before_running(function)
        if finding is not None:
            return {"reason": finding.reason, "message": finding.message, "cause": finding.cause}
        self.runner = RecordingRunner(function, allows)
        self.executor = InProcessExecutor(self.runner)
        return None

    def run(self, inputs: Frozen, order) -> bytes:
        """Call the chosen function once. Return its evidence."""
        return self.executor.run(inputs, order).encode()

    def transcript(self) -> dict:
        """Return what the last run had done on its tensors, to be done again elsewhere."""
        return self.runner.transcript()

    def objections(self) -> list[str]:
        """Return what the compiler for the GPU says against the kernels that ran."""
        return self.executor.objections()


def python_of(source: str) -> str:
    """Return a cell as Python: IPython's magics and shell lines become calls, which do nothing here."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        compile(source, "cell", "exec", dont_inherit=True)
        return source
    except SyntaxError:
        return TransformerManager().transform_cell(source)

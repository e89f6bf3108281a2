"""Job files (P8): ``hot.py`` with its only Job; ``hot.py:nightly`` with one of several Jobs, or with a function that
returns a Job and whose parameters become options.

A file is imported as a module named after it, never run as ``__main__``, and its folder is importable. So other
processes with the same code can find by name what the file defines.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from clonos_py.dsl.callsite import LocatedError
from clonos_py.dsl.job import Job
from clonos_py.dsl.runs import loading
from clonos_py.model.errors import ClonosError, GraphError, SettingError, SourceError, type_and_text
from clonos_py.model.places import place_of
from clonos_py.model.record import split_optional

_KINDS = (str, int, float, bool)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a job function. ``kind`` is str, int, float or bool; a ``required`` parameter has no default."""

    name: str
    kind: type[Any]
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class JobFile:
    """The job that a file defines: ``job(values)`` returns the Job, given values by the names of ``parameters``."""

    path: Path
    module: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    make: Callable[..., Job] | None = field(default=None, repr=False)
    found: Job | None = None

    def job(self, values: Mapping[str, Any] | None = None) -> Job:
        """Returns the job. Raises GraphError if a value is missing, or the function returns something else."""
        if self.make is None:
            assert self.found is not None
            return self.found
        given = {name: value for name, value in (values or {}).items() if value is not None}
        missing = [name for name, spec in self.parameters.items() if spec.required and name not in given]
        if missing:
            raise GraphError(f"{self.path.name} needs a value for {', '.join(missing)}")
        if inspect.iscoroutinefunction(self.make):
            raise GraphError(f"{self.path.name}: {self.make.__name__}() is async, but it only defines a job; write def")
        try:
            with loading(self.path.name):
                job = self.make(**given)
        except LocatedError:
            raise
        except Exception as error:
            raise _explained(self.path, error) from error
        if not isinstance(job, Job):
            raise GraphError(f"{self.path.name}: {self.make.__name__}() gave {type(job).__name__}, not a Job")
        return job


def load_job_file(text: str) -> JobFile:
    """Imports ``FILE.py`` or ``FILE.py:NAME``. Raises GraphError unless it is a module with exactly one job."""
    file, _, name = text.partition(":") if not Path(text).exists() else (text, "", "")
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise GraphError(f"{file}: no such job file; give a Python file, or FILE.py:NAME")
    module = _imported(path)
    candidates = _candidates(module)
    if name not in candidates and (name or not candidates):
        _refuse_undeclared(path, module, name or "job")
    if name:
        if name not in candidates:
            raise GraphError(f"{path.name} has no job {name!r}; it has {', '.join(candidates) or 'none'}")
        return _offer(path, module, candidates[name])
    distinct = {id(found): found for found in candidates.values()}
    if len(distinct) != 1:
        hint = f"it has {', '.join(candidates)}: name one, as {path.name}:{next(iter(candidates))}" if candidates else (
            "define one: job = Job('...'), or a function `def job(...) -> Job`"
        )  # fmt: skip
        raise GraphError(f"{path.name} has {len(distinct) or 'no'} job{'s' if distinct else ''}; {hint}")
    return _offer(path, module, next(iter(distinct.values())))


def _imported(path: Path) -> ModuleType:
    name = path.stem
    if "." in name:
        raise GraphError(f"{path.name}: a task cannot import a module with a dot in its name; rename the file")
    known = sys.modules.get(name)
    if name in sys.stdlib_module_names and known is None:
        raise GraphError(
            f"{path.name}: Python has a module {name!r} of its own, which this would hide; rename the file"
        )
    if known is not None and getattr(known, "__file__", None) != str(path):
        raise GraphError(f"{path.name}: there is a module {name!r} already ({_origin(known)}); rename the file")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GraphError(f"{path.name} cannot be imported as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with loading(path.name):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        if isinstance(error, LocatedError):
            raise
        raise _explained(path, error) from error
    return module


def _origin(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "built in"


def _explained(path: Path, error: BaseException) -> ClonosError:
    """The error that the user's file raised, with its line."""
    if not isinstance(error, ClonosError):
        return GraphError(f"{_line(path, error)}: {type_and_text(error)}{_elsewhere(path, error)}")
    kind = type(error) if isinstance(error, GraphError | SettingError | SourceError) else GraphError
    return kind(f"{_line(path, error)}: {error}{_elsewhere(path, error)}")


def _elsewhere(path: Path, error: BaseException) -> str:
    """The line that failed, if it is in another module of the user, which the file imports or calls."""
    place = place_of(error)
    return f" (at {place})" if place and not place.startswith(f"{path.name}:") else ""


def _line(path: Path, error: BaseException) -> str:
    """The last line of the file in the error's traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path.name}:{error.lineno}"
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{path.name}:{lines[-1]}" if lines else path.name


def _candidates(module: ModuleType) -> dict[str, Any]:
    """Jobs, and functions defined in this module with the annotation ``-> Job``, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Job) or _gives_job(value, module)}


def _refuse_undeclared(path: Path, module: ModuleType, name: str) -> None:
    """Raises GraphError for a function without a return annotation."""
    found = vars(module).get(name)
    if inspect.isfunction(found) and found.__module__ == module.__name__ and "return" not in found.__annotations__:
        raise GraphError(f"{path.name}:{found.__code__.co_firstlineno}: {name}() has no `-> Job`; add it")


def _gives_job(value: Any, module: ModuleType) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    try:
        return typing.get_type_hints(value).get("return") is Job
    except (NameError, TypeError):
        return False


def _offer(path: Path, module: ModuleType, found: Any) -> JobFile:
    if isinstance(found, Job):
        return JobFile(path, module.__name__, {}, None, found)
    hints = typing.get_type_hints(found)
    specs = [_parameter(path, spec, hints.get(name, str)) for name, spec in inspect.signature(found).parameters.items()]
    return JobFile(path, module.__name__, {spec.name: spec for spec in specs}, found)


def _parameter(path: Path, spec: inspect.Parameter, kind: Any) -> Parameter:
    plain, _ = split_optional(kind)
    if plain not in _KINDS or spec.kind not in (spec.POSITIONAL_OR_KEYWORD, spec.KEYWORD_ONLY):
        raise GraphError(f"{path.name}: parameter {spec.name!r} cannot be an option; use str, int, float or bool")
    required = spec.default is spec.empty
    if not required and not isinstance(spec.default, (plain, type(None), *((int,) if plain is float else ()))):
        raise GraphError(f"{path.name}: parameter {spec.name!r} is {plain.__name__}, its default is {spec.default!r}")
    return Parameter(spec.name, plain, None if required else spec.default, required)

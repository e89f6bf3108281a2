"""Commands that take a job file. The job's parameters become options of the command, also in ``--help``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from clonos_py.model.errors import GraphError
from clonos_py.runtime.garbage import kept
from clonos_py.settings.definitions import DEFINITIONS

if TYPE_CHECKING:  # without a file, a command answers before these are imported
    from clonos_py.dsl.job import Job
    from clonos_py.dsl.loading import JobFile, Parameter

FILE_HELP = "FILE is a Python file with one job, or FILE:NAME where it has several."
_RESERVED = frozenset({*DEFINITIONS, "file", "format", "help", "kill", "live", "rename", "rows"})

_ARGUMENTS = f"{__name__}.arguments"
_ONCE, _ONCE_WITH_VALUE = ("--fresh",), ("--kill",)
"""Options that do not apply when the same command is run again."""
_CARRIED_OUT_WITH_VALUE = ("--drop-state", "--rename")
"""Options that no longer apply when a checkpoint of the run is complete: they would drop the state since then."""


class JobCommand(click.Command):
    """A command whose first argument is a job file.

    The file is loaded while the command line is parsed, since it determines the available options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        name = self._file_among(ctx, args)
        if name is not None:
            with kept():
                from clonos_py.dsl.loading import load_job_file

                ctx.obj = load_job_file(name)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        jobs: JobFile | None = ctx.obj
        if jobs is None:
            return params
        return [*params, *(_option(spec, jobs) for spec in jobs.parameters.values())]

    def _file_among(self, ctx: click.Context, args: list[str]) -> str | None:
        """The job file that the command line names, even if it has options of the job; None if it names none."""
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = True
        try:
            values, rest, _ = parser.parse_args(args=list(args))
        except click.UsageError:
            return None
        words = [word for word in (values.get("file"), *rest) if isinstance(word, str) and not word.startswith("-")]
        return next((word for word in words if ".py" in word), words[0] if words else None)


def _option(spec: Parameter, jobs: JobFile) -> click.Option:
    """The option of a job parameter. Raises GraphError if the name is that of a setting, as both would conflict."""
    if spec.name in _RESERVED:
        raise GraphError(f"{jobs.path.name}: parameter {spec.name!r} has the name of an option of clonos; rename it")
    option = "--" + spec.name.replace("_", "-")
    shown = f"  [default: {spec.default}]" if spec.default is not None else ""
    return click.Option(
        [f"{option}/--no-{option[2:]}" if spec.kind is bool else option, spec.name],
        type=spec.kind,
        required=spec.required,
        help=f"Parameter of {jobs.path.name}.{shown}",
    )


def job_of(ctx: click.Context) -> Job:
    """The job in the file, built with the values of its parameters."""
    jobs: JobFile = ctx.obj
    return jobs.job({name: ctx.params[name] for name in jobs.parameters})


def again(ctx: click.Context, carried_out: bool = False) -> str:
    """The command line that resumes the job from its last checkpoint. ``carried_out``: whether this run took it."""
    once = (*_ONCE_WITH_VALUE, *(_CARRIED_OUT_WITH_VALUE if carried_out else ()))
    words = list(ctx.meta[_ARGUMENTS])
    kept = []
    while words:
        word = words.pop(0)
        if word in once:
            del words[:1]
        elif word not in _ONCE and not word.startswith(tuple(f"{option}=" for option in once)):
            kept.append(word)
    return shlex.join([*ctx.command_path.split(), *kept])

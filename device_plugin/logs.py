"""Logs: structlog, one line per event. Text for people on a terminal, JSON for machines otherwise.

Event names are constant strings `noun.verb_past`; what varies goes into fields, whose names equal metric label names.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger as Logger

if TYPE_CHECKING:
    from structlog.typing import Processor

    from device_plugin.problems import Problem

__all__ = ["FORMATS", "LEVELS", "Logger", "configure", "get_logger", "log_problem"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def configure(level: str = "info", log_format: Literal["text", "json"] | None = None, stream: TextIO | None = None) -> None:
    """Set up logging for the process. Without a format: text if `stream` (standard error by default) is a terminal, else JSON."""
    out = stream if stream is not None else sys.stderr
    is_text = log_format == "text" or (log_format is None and out.isatty())
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_text:
        # Plain tracebacks: the decorated ones need a library that the image leaves out, and would differ where it is present.
        processors.append(
            structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0)
        )
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=False, default=str)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def get_logger(**context: Any) -> Logger:
    """A logger that carries `context` in each of its lines."""
    return cast("Logger", structlog.get_logger(**context))


def log_problem(logger: Logger, problem: Problem) -> None:
    """One line for one Problem, at the level of its severity."""
    method = {"error": logger.error, "warning": logger.warning}.get(problem.severity, logger.info)
    method("problem.found", kind=problem.kind.value, message=problem.message, origin=str(problem.origin), path=problem.origin.path)

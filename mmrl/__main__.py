"""The `mmrl` command: `mmrl --help`, or `python -m mmrl --help`."""

import importlib
import os
import sys
from collections.abc import Sequence

import mmrl
from mmrl.commands.process import INTERRUPTED, Interrupts, replace_unknown

# Descriptions are here because the modules in `mmrl.commands` are slow to import.
COMMANDS = {
    "train": "Train an agent on several seeds, with progress, checkpoints and exact resume.",
    "sweep": "Train with --over: find the best of several settings in one program.",
    "gap": "Measure what a task's hidden state costs agents with a memory and without one.",
    "evaluate": "Evaluate a trained agent in our environment or in the original popgym.",
    "export": "Export a trained policy to one file that plays with only NumPy.",
    "demo": "Train agents that remember, and one that cannot: tables and curves in minutes.",
    "experiment": "Repeat the measurements that the book shows.",
    "capstone": "Test a custom memory: the gates, budget and leaderboard of chapter 19.",
    "explore": "Open the training explorer and the widgets as a separate page.",
    "doctor": "Report which devices and packages mmrl uses, and whether they work.",
}
BAD_INPUT = 2
_ADVICE = " (set JAX_PLATFORMS"  # ends JAX's message about a platform that it cannot start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0, 2 after bad input, 130 after Ctrl-C.

    A user's mistake ends in one message without a traceback; MMRL_TRACEBACK=1 shows the traceback.
    """
    replace_unknown()
    with Interrupts() as interrupts:
        return _ended(sys.argv[1:] if arguments is None else list(arguments), interrupts)


def _ended(arguments: list[str], interrupts: Interrupts) -> int:
    """Run one command, and turn the exceptions that end it into messages and exit codes."""
    try:
        if arguments[:1] == ["--version"]:
            print(f"mmrl {mmrl.__version__}")
            return 0
        if not arguments or arguments[0] not in COMMANDS:
            return _overview(arguments)
        if {"-h", "--help"} & {*arguments} and "jax" not in sys.modules:
            os.environ["JAX_PLATFORMS"] = "cpu"  # so that help does not depend on a device
        if arguments[0] in ("train", "sweep"):  # before the import, which starts JAX
            importlib.import_module("mmrl.commands.connect").connect(arguments[1:])
        command = importlib.import_module(f"mmrl.commands.{arguments[0]}")
        importlib.import_module("mmrl._random").compile_quickly()
        with interrupts.raised():
            return command.main(arguments[1:])
    except KeyboardInterrupt as stopped:
        _say(str(stopped) or "Stopped.")
        return _leave(INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _leave(0)
    except Exception as error:
        if interrupts.pressed:  # extension modules replace a KeyboardInterrupt by other errors
            _say("Stopped.")
            return _leave(INTERRUPTED)
        message = _message(error)
        if message is None or os.environ.get("MMRL_TRACEBACK"):
            raise
        _say(message)
        # Leave at once, because JAX would wait for the lost processes.
        return _leave(BAD_INPUT, at_once=isinstance(error, _processes("Lost")))


def _overview(arguments: list[str]) -> int:
    """Print `mmrl --help`, or tyro's message about an unknown command."""

    import tyro  # after `Interrupts`, as for every slow import

    def command(description: str):
        def nothing() -> None: ...

        nothing.__doc__ = description
        return nothing

    tyro.extras.subcommand_cli_from_dict(
        {name: command(description) for name, description in COMMANDS.items()},
        prog="mmrl",
        description="Recurrent reinforcement learning through one idea: a memory is a monoid. "
        "`mmrl COMMAND --help` lists a command's options.",
        args=arguments or ["--help"],
    )
    return 0


def _message(error: Exception) -> str | None:
    """Return the message about an error that the user can fix; None for a bug in mmrl."""
    if isinstance(error, (ValueError, _processes("RunError"), _processes("Lost"))):
        return str(error)
    if isinstance(error, RuntimeError | AssertionError) and (message := _no_device(error)):
        return message
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'}: {error.strerror or error}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "There is not enough memory: lower `capacity`, `batch`, or the number of seeds."
    return None


def _say(message: str) -> None:
    print(f"mmrl: {message}", file=sys.stderr, flush=True)


def _no_device(error: Exception) -> str | None:
    """Return a sentence on `JAX_PLATFORMS`, or None if JAX can start the platforms it names."""
    import jax

    try:
        jax.devices()  # this starts the platforms listed before the bad one
    except (RuntimeError, AssertionError) as now:
        error = now
    else:
        if _ADVICE not in str(error):
            return None
    reason = str(error).partition(_ADVICE)[0].rstrip(".")
    return (
        "`JAX_PLATFORMS` must name platforms that JAX can start on this machine; got "
        f"{os.environ.get('JAX_PLATFORMS')!r}{': ' * bool(reason)}{reason}. "
        "Set JAX_PLATFORMS=cpu, or leave it unset to use the best device that JAX finds."
    )


def _processes(name: str) -> type[Exception] | tuple[()]:
    """Return an exception class of `mmrl.runs.processes`, or () if that is not imported."""
    return getattr(sys.modules.get("mmrl.runs.processes"), name, ())


def _leave(code: int, at_once: bool = False) -> int:
    """Exit without waiting for a block that computes in another thread. Files are always whole."""
    import threading

    for thread in threading.enumerate():
        if thread.name == "mmrl":
            thread.join(timeout=0.5)
            at_once = at_once or thread.is_alive()
    if at_once:
        sys.stdout.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())

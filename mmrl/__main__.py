"""Command-line interface: see `mmrl --help`, or `python -m mmrl --help`."""

import importlib
import os
import sys
from collections.abc import Sequence

import mmrl
from mmrl.commands.process import INTERRUPT_CODE, Interrupts, replace_unknown

# Descriptions are listed here so that `mmrl --help` does not import the slow command modules.
COMMANDS = {
    "train": "Train an agent with several seeds, with checkpoints and exact resume.",
    "sweep": "Train several settings to find the best one (same as train --over).",
    "gap": "Measure the cost of partial observability, and how much a memory recovers.",
    "evaluate": "Evaluate a trained agent in our environment or in the original popgym.",
    "inspect": "Measure what a trained agent remembers and how it uses its memory.",
    "export": "Export a trained policy to a file that only requires NumPy.",
    "demo": "Train agents with and without memory in a few minutes, and compare their results.",
    "experiment": "Repeat the measurements in the book.",
    "capstone": "Check, train and rank a custom memory, as in chapter 19.",
    "explore": "Open the training explorer and the widgets in a browser.",
    "doctor": "Check packages and devices, and test whether agents learn.",
}
BAD_INPUT = 2
# JAX appends this advice to the error that it raises if it cannot initialize a platform.
_ADVICE = " (set JAX_PLATFORMS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The exit code is 0 on success, 2 after bad input, and 130 after Ctrl-C. A user error prints a
    single message instead of a traceback. Set MMRL_TRACEBACK=1 to see the traceback.
    """
    replace_unknown()
    with Interrupts() as interrupts:
        return _exit_code(sys.argv[1:] if arguments is None else list(arguments), interrupts)


def _exit_code(arguments: list[str], interrupts: Interrupts) -> int:
    """Run one command, and convert exceptions to messages and exit codes."""
    try:
        if arguments[:1] == ["--version"]:
            print(f"mmrl {mmrl.__version__}")
            return 0
        if not arguments or arguments[0] not in COMMANDS:
            return _overview(arguments)
        if {"-h", "--help"} & {*arguments} and "jax" not in sys.modules:
            os.environ["JAX_PLATFORMS"] = "cpu"  # do not start a GPU to print help
        if arguments[0] in ("train", "sweep"):  # connect before the import below starts JAX
            importlib.import_module("mmrl.commands.connect").connect(arguments[1:])
        command = importlib.import_module(f"mmrl.commands.{arguments[0]}")
        importlib.import_module("mmrl._random").compile_quickly()
        with interrupts.as_exceptions():
            return command.main(arguments[1:])
    except KeyboardInterrupt as interrupt:
        _say(str(interrupt) or "Stopped.")
        return _leave(INTERRUPT_CODE)
    except BrokenPipeError:  # the reader of our output, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _leave(0)
    except Exception as error:
        if interrupts.pressed:  # extension modules may convert a KeyboardInterrupt
            _say("Stopped.")
            return _leave(INTERRUPT_CODE)
        message = _message(error)
        if message is None or os.environ.get("MMRL_TRACEBACK"):
            raise
        _say(message)
        # Skip JAX's cleanup, which would wait for the lost processes.
        return _leave(BAD_INPUT, at_once=isinstance(error, _processes("ProcessLoss")))


def _overview(arguments: list[str]) -> int:
    """Print `mmrl --help`, or tyro's message about an unknown command."""

    import tyro  # import slow modules only after `Interrupts` is installed

    def command(description: str):
        def placeholder() -> None: ...

        placeholder.__doc__ = description
        return placeholder

    tyro.extras.subcommand_cli_from_dict(
        {name: command(description) for name, description in COMMANDS.items()},
        prog="mmrl",
        description="Recurrent reinforcement learning built on one idea: a memory is a monoid. "
        "`mmrl COMMAND --help` lists a command's options.",
        args=arguments or ["--help"],
    )
    return 0


def _message(error: Exception) -> str | None:
    """Return the message for an error that the user can fix.

    Return None for any other error, which is a bug in mmrl.
    """
    if isinstance(error, (ValueError, _processes("RunError"), _processes("ProcessLoss"))):
        return str(error)
    if isinstance(error, RuntimeError | AssertionError) and (message := _no_device(error)):
        return message
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'}: {error.strerror or error}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "Out of memory. Reduce `capacity`, `batch`, or the number of seeds."
    return None


def _say(message: str) -> None:
    print(f"mmrl: {message}", file=sys.stderr, flush=True)


def _no_device(error: Exception) -> str | None:
    """Return a message if JAX cannot start the platforms in `JAX_PLATFORMS`, else None."""
    import jax

    try:
        jax.devices()  # start the platforms that precede the failing one
    except (RuntimeError, AssertionError) as now:
        error = now
    else:
        if _ADVICE not in str(error):
            return None
    reason = str(error).partition(_ADVICE)[0].rstrip(".")
    return (
        "`JAX_PLATFORMS` must list platforms that JAX can start on this machine; got "
        f"{os.environ.get('JAX_PLATFORMS')!r}{': ' * bool(reason)}{reason}. "
        "Set JAX_PLATFORMS=cpu, or unset it to use the default device."
    )


def _processes(name: str) -> type[Exception] | tuple[()]:
    """Return an exception class of `mmrl.runs.processes`, or () if it is not imported."""
    return getattr(sys.modules.get("mmrl.runs.processes"), name, ())


def _leave(code: int, at_once: bool = False) -> int:
    """Return the exit code, or exit immediately if a thread is still computing.

    The files of a run are always consistent, so exiting loses only the block that is in progress.
    """
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

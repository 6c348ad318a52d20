"""Ctrl-C ends a command wherever it comes."""

import subprocess
import sys

import pytest

START = """
import gc, signal, sys, threading, types, weakref
from mmrl.__main__ import main

class Thing:
    press_at_end = False

    def __del__(self):
        if self.press_at_end:
            press()

def press(*_):
    gc.callbacks.clear()
    signal.raise_signal(signal.SIGINT)

def in_finalizer():
    thing = Thing()
    thing.press_at_end = True

def in_reference():
    thing = Thing()
    reference = weakref.ref(thing, press)
    del thing

def in_collector():
    gc.callbacks.append(press)
    gc.collect()

def another_exception():
    try:
        press()
    except KeyboardInterrupt:
        raise ImportError("a module of C did not start")

def during_import():
    try:
        press()
    finally:
        print("imports continue", flush=True)

def command(arguments):
    works[sys.argv[1]]()
    print("goes on", flush=True)
    threading.Event().wait(15)  # only where the interrupt is lost

works = dict(globals())
sys.modules["mmrl._random"] = types.SimpleNamespace(compile_quickly=lambda: None)  # not JAX
explorer = sys.modules["mmrl.commands.explore"] = types.SimpleNamespace(main=command)
if sys.argv[1] == "during_import":
    sys.modules["mmrl._random"].compile_quickly = during_import
if sys.argv[1] == "twice":
    explorer.main = press
    threading.enumerate = press  # which the end of a command calls
sys.exit(main(["explore"]))
"""


def outcome(work: str) -> tuple[int, str, str]:
    """Return how a command ended that was interrupted in some way: exit code, stdout, stderr."""
    command = [sys.executable, "-c", START, work]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize("work", ["in_finalizer", "in_reference", "in_collector"])
def test_an_interrupt_that_a_callback_swallows_is_repeated(work: str):
    assert outcome(work) == (130, "goes on\n", "mmrl: Stopped.\n")


@pytest.mark.parametrize("work", ["another_exception", "during_import", "twice"])
def test_an_interrupt_is_one_sentence(work: str):
    assert outcome(work) == (130, "", "mmrl: Stopped.\n")

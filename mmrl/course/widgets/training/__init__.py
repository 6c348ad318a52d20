"""Training that can be watched, paused, stopped, compared and kept.

    explorer = TrainingExplorer(memory="lru")
    explorer                            # press Train
    explorer.run("GRU", memory="gru")   # or train from a cell
    PolicyPlayer("zoo/RepeatFirstEasy-dqn-lru")   # one that is trained already, at play

Controls and curves live in the kernel; on a page without one they show how they were left.
"""

try:
    from mmrl.course.widgets.training.explorer import TrainingExplorer
    from mmrl.course.widgets.training.player import AgentPlayer, PolicyPlayer
    from mmrl.course.widgets.training.playing import LiveAgent
except ModuleNotFoundError as error:
    if error.name != "ipywidgets":
        raise
    text = "The explorer needs ipywidgets: pip install ipywidgets."
    raise ModuleNotFoundError(text, name=error.name) from error

__all__ = ["AgentPlayer", "LiveAgent", "PolicyPlayer", "TrainingExplorer"]

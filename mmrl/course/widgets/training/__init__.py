"""Widgets for training agents interactively and for watching them play.

    explorer = TrainingExplorer(memory="lru")
    explorer                            # press Train
    explorer.run("GRU", memory="gru")   # or train from a cell
    PolicyPlayer("zoo/RepeatFirstEasy-dqn-lru")   # watch a trained agent play

The controls require a kernel. A page without a kernel shows their last state.
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

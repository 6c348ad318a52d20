"""The player of episodes, and what every widget is made of: `base`.

The explorers of the course are in `mmrl.course.widgets`.
"""

try:
    from mmrl.show.widgets.base import END
    from mmrl.show.widgets.episodes import EpisodePlayer, episode_player
except ModuleNotFoundError as error:
    if error.name not in ("anywidget", "traitlets"):
        raise
    text = "Widgets need anywidget: pip install anywidget."
    raise ModuleNotFoundError(text, name=error.name) from error

__all__ = ["END", "EpisodePlayer", "episode_player"]

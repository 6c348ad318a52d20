"""The course as an app: an agent trains and plays beside its settings, and every widget is at hand.

`make explore` or `mmrl explore` opens it as a page of its own. In JupyterLab:

    from mmrl.course.app import explore
    explore("env=popgym-RepeatPreviousEasy-v0&memory=gru")

It takes what a link of the app has behind its question mark; without, it opens as it is.
"""

from mmrl.course.app.page import App, explore

__all__ = ["App", "explore"]

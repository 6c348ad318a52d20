"""The course as an app: train an agent next to its settings, watch it play, and open any widget.

`make explore` or `mmrl explore` opens the app as a separate page. In JupyterLab:

    from mmrl.course.app import explore
    explore("env=popgym-RepeatPreviousEasy-v0&memory=gru")

The argument is the part of a link of the app behind the question mark; the default is "".
"""

from mmrl.course.app.page import App, explore

__all__ = ["App", "explore"]

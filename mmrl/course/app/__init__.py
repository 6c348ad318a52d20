"""An app for training an agent, watching it play, and opening widgets.

`make explore` or `mmrl explore` opens the app as a separate page. In JupyterLab:

    from mmrl.course.app import explore
    explore("env=popgym-RepeatPreviousEasy-v0&memory=gru")

The optional argument is the query of a link to the app, the part after the question mark.
"""

from mmrl.course.app.page import App, explore

__all__ = ["App", "explore"]

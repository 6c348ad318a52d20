"""`mmrl sweep`, a former name of `mmrl train --over`."""

import functools

from mmrl.commands.options import Options as Options
from mmrl.commands.train import main as train

main = functools.partial(train, command="sweep")

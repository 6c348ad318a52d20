"""CLEAR agent: the training loop is in `clear`, and the loss in `vtrace`."""

from mmrl.agents.clear.about import PAPERS as PAPERS
from mmrl.agents.clear.about import SMALL as SMALL
from mmrl.agents.clear.about import label as label
from mmrl.agents.clear.clear import OBSERVES as OBSERVES
from mmrl.agents.clear.clear import Config as Config
from mmrl.agents.clear.clear import State as State
from mmrl.agents.clear.clear import Tasks as Tasks
from mmrl.agents.clear.clear import act as act
from mmrl.agents.clear.clear import block as block
from mmrl.agents.clear.clear import check as check
from mmrl.agents.clear.clear import enter as enter
from mmrl.agents.clear.clear import greedy as greedy
from mmrl.agents.clear.clear import init as init
from mmrl.agents.clear.clear import iterate as iterate
from mmrl.agents.clear.clear import learn as learn
from mmrl.agents.clear.clear import leave as leave
from mmrl.agents.clear.clear import of_task as of_task
from mmrl.agents.clear.clear import pair as pair
from mmrl.agents.clear.clear import train as train
from mmrl.agents.clear.vtrace import Measures as Measures
from mmrl.agents.clear.vtrace import loss as loss
from mmrl.replay.reservoir import Unrolls as Unrolls

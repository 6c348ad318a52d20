"""R2D2 agent: learning and training are in `r2d2`, and the actors in `actors`."""

from mmrl.agents.r2d2.about import PAPERS as PAPERS
from mmrl.agents.r2d2.about import SMALL as SMALL
from mmrl.agents.r2d2.about import label as label
from mmrl.agents.r2d2.r2d2 import OBSERVES as OBSERVES
from mmrl.agents.r2d2.r2d2 import Config as Config
from mmrl.agents.r2d2.r2d2 import State as State
from mmrl.agents.r2d2.r2d2 import act_and_store as act_and_store
from mmrl.agents.r2d2.r2d2 import beta as beta
from mmrl.agents.r2d2.r2d2 import block as block
from mmrl.agents.r2d2.r2d2 import check as check
from mmrl.agents.r2d2.r2d2 import greedy as greedy
from mmrl.agents.r2d2.r2d2 import init as init
from mmrl.agents.r2d2.r2d2 import iterate as iterate
from mmrl.agents.r2d2.r2d2 import learn as learn
from mmrl.agents.r2d2.r2d2 import loss as loss
from mmrl.agents.r2d2.r2d2 import train as train
from mmrl.agents.r2d2.r2d2 import unroll as unroll

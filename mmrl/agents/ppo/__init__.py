"""PPO and PPG with a memory: this package is the agent PPO, and `ppg` is the agent PPG.

`learner` contains the code that PPO and PPG share, and `diagnostics` their metrics.
"""

from mmrl.agents.ppo import about
from mmrl.agents.ppo.about import SMALL as SMALL
from mmrl.agents.ppo.about import label as label
from mmrl.agents.ppo.learner import Average as Average
from mmrl.agents.ppo.learner import Batch as Batch
from mmrl.agents.ppo.learner import Measures as Measures
from mmrl.agents.ppo.learner import loss as loss
from mmrl.agents.ppo.ppo import OBSERVES as OBSERVES
from mmrl.agents.ppo.ppo import Config as Config
from mmrl.agents.ppo.ppo import Diagnostics as Diagnostics
from mmrl.agents.ppo.ppo import Flag as Flag
from mmrl.agents.ppo.ppo import Rollout as Rollout
from mmrl.agents.ppo.ppo import State as State
from mmrl.agents.ppo.ppo import act as act
from mmrl.agents.ppo.ppo import block as block
from mmrl.agents.ppo.ppo import check as check
from mmrl.agents.ppo.ppo import delay as delay
from mmrl.agents.ppo.ppo import ends as ends
from mmrl.agents.ppo.ppo import evaluate as evaluate
from mmrl.agents.ppo.ppo import greedy as greedy
from mmrl.agents.ppo.ppo import init as init
from mmrl.agents.ppo.ppo import iterate as iterate
from mmrl.agents.ppo.ppo import learn as learn
from mmrl.agents.ppo.ppo import stochastic as stochastic
from mmrl.agents.ppo.ppo import train as train

PAPERS = about.PPO

"""The plain cross-entropy control of ladders whose networks all use one method.

The network check, whether the base network is over-confident as in the papers, needs such networks.
"""

from tune_calib.spec.ladder import Rung

PLAIN = Rung("CE", "plain cross entropy, which tells the regime", {"network": {"method": "ce"}},
             kind="control")  # fmt: skip

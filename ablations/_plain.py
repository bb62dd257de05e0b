"""The control of ladders whose networks all have one method: plain cross entropy.

Whether results are in the regime of the papers is told by networks of plain cross entropy.
"""

from tune_calib.spec.ladder import Rung

PLAIN = Rung("CE", "plain cross entropy, which tells the regime", {"network": {"method": "ce"}},
             kind="control")  # fmt: skip

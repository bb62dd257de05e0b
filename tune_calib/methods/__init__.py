"""Methods, one per file. Files that begin with an underscore are shared by several methods."""

from tune_calib.methods._base import Batch as Batch
from tune_calib.methods._base import EpochFeedback as EpochFeedback
from tune_calib.methods._base import EpochStatistics as EpochStatistics
from tune_calib.methods._base import HeadContext as HeadContext
from tune_calib.methods._base import HeadMethod as HeadMethod
from tune_calib.methods._base import NetworkContext as NetworkContext
from tune_calib.methods._base import NetworkMethod as NetworkMethod
from tune_calib.methods._base import PostHocMethod as PostHocMethod
from tune_calib.methods._base import Step as Step
from tune_calib.methods._estimator import from_estimator as from_estimator
from tune_calib.methods._functional import label_log_probs as label_log_probs
from tune_calib.methods._posthoc import Fit as Fit
from tune_calib.methods._posthoc import FittedAlone as FittedAlone

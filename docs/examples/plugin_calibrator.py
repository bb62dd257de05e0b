"""A classifier of scikit-learn as a post-hoc method: the classes of the nearest calib samples."""

from sklearn.neighbors import KNeighborsClassifier

from tune_calib.methods import from_estimator
from tune_calib.spec.methods import METHODS

METHODS.register(
    from_estimator(
        "neighbours",
        KNeighborsClassifier,
        title="nearest neighbours",
        paper="Cover and Hart, IEEE Transactions on Information Theory",
        year=1967,
        url="https://doi.org/10.1109/TIT.1967.1053964",
    )
)

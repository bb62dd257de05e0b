"""Ray Tune Trainables: thin wrappers of the engine, reusable actors, no mathematics.

``trainable("mac_cal")`` gives the class bound to a method, for use in any ``tune.Tuner``::

    tune.Tuner(
        trainable("mac_cal"),
        param_space={
            "head": {"gamma": tune.uniform(0.7, 1.0)},
            "run": {"out": "/tmp/own/results", "store": "/tmp/own/store"},
        },
    )

Settings that are not given are those that the command line would take (``settings.effective``).
"""

from ray import tune

from tune_calib.spec import plugins
from tune_calib.spec.methods import METHODS
from tune_calib.tuning.ray.head_trainable import HeadTrainable
from tune_calib.tuning.ray.network_trainable import NetworkTrainable


def trainable(name: str) -> type[tune.Trainable]:
    """The Trainable bound to a method, e.g. ``MacCalTrainable``.

    A post-hoc method is bound to the network's own head; behind another head it is the
    ``posthoc`` slot in the configuration of that head's class.

    Args:
        name: a name of the method registry.

    Raises:
        UserError: the method is unknown.
    """
    base = HeadTrainable if METHODS[name].kind == "head" else NetworkTrainable
    title = "".join(part.capitalize() for part in name.split("_"))
    return type(
        f"{title}Trainable",
        (base,),
        {"method": name, "plugins": plugins.in_use(), "__doc__": METHODS[name].title},
    )

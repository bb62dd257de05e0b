"""Single settings of MaC-Cal, changed in turn from those that a search found on a ResNet-50.

The search is that of ``docs/claims/resnet50/tuned``. Settings of one reading change
together.
"""

from typing import Any

from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_TUNED: dict[str, Any] = {
    "method": "mac_cal",
    "masking": "destructive",
    "evaluation": "dense",
    "shape": "bottleneck",
    "width": 128,
    "lr": 0.015442584690632345,
    "loss_reduction": "mean",
    "clip_grad_norm": None,
    "weight_decay": 0.01363344849064283,
    "q0": 0.647558997545056,
    "gamma": 1.0,
    "tau0": 0.09710405181319937,
    "tau_decay": 0.05351485012144441,
    "q_min": 0.09349728845395645,
    "masked_update": "freeze",
    "statistics": "eval_head_pass",
}

_CHANGES: dict[str, dict[str, Any]] = {
    "gamma 0.65": {"gamma": 0.65},
    "gamma 0.75": {"gamma": 0.75},
    "gamma 0.85": {"gamma": 0.85},
    "gamma 0.95": {"gamma": 0.95},
    "gamma val_ratio": {"gamma": "val_ratio"},
    "q0 0.3": {"q0": 0.3},
    "q0 0.5": {"q0": 0.5},
    "q0 0.9": {"q0": 0.9},
    "tau0 0": {"tau0": 0.0},
    "tau0 0.05": {"tau0": 0.05},
    "tau0 0.2": {"tau0": 0.2},
    "q_min 0.3": {"q_min": 0.3},
    "width 64": {"width": 64},
    "width D/4": {"width": None},
    "linear": {"shape": "linear", "width": None},
    "statistics of the running epoch": {"statistics": "masked_running"},
    "masks once an epoch": {"masked_update": "grad_only"},
    "masks in the forward pass": {
        "masking": "functional",
        "masked_update": "grad_only",
        "evaluation": "expected",
    },
    "weight decay 0.0005": {"weight_decay": 0.0005},
    "summed loss, rate 0.1": {"loss_reduction": "sum", "clip_grad_norm": 2.0, "lr": 0.1},
    "mean loss, rate 0.1": {"lr": 0.1},
    "epoch by NLL on select": {"select": "min_val_nll"},
}

_RUNGS = [
    Rung("vanilla", "the network's own head", kind="base"),
    Rung("tuned", "MaC-Cal, tuned", {"head": _TUNED}, kind="variant"),
]
for label, change in _CHANGES.items():
    settings = {**_TUNED, **change}
    _RUNGS.append(
        Rung(label, "changed from the tuned settings", {"head": settings}, kind="variant")
    )

LADDERS.register(
    Ladder(
        name="mac_cal_settings",
        title="MaC-Cal, one setting at a time",
        rungs=tuple(_RUNGS),
    ),
)

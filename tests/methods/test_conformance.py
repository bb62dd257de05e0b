"""What every method of the registry must do, whatever it is; and that the checks find who fails."""

import shutil
from dataclasses import replace

import pytest

from tests import support
from tests.support import CPU, drive, here, small_spec
from tune_calib.conformance import suite
from tune_calib.conformance.bench import Bench, FailedCheckError, NotApplicableError
from tune_calib.conformance.suite import checks_of, record, results
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.results.tables import read_table
from tune_calib.spec import plugins
from tune_calib.spec.methods import METHODS, Params
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.space import SPACES
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray.trainables import trainable

UNSTABLE = ["wall_s", "own_s", "bank_s", "peak_memory_bytes", "actor_resets"]
NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]


@pytest.fixture(scope="session")
def bench(trained) -> Bench:
    """The bench of a user, but with fewer digits to train networks and heads on."""
    bench = Bench(trained)
    bench.few = load_development(DataSlot(train_fraction=0.1), None)
    spec = TrialSpec.build(
        data={"train_fraction": 0.3},
        network=small_spec().network.model_dump(mode="json"),
        head={"method": "retrain", "epochs": 3, "augment": "none"},
    )
    splits = load_development(spec.data, None), load_test(spec.data, None)
    run = NetworkTraining(spec, trained, splits[0], CPU)
    while run.step() is not None:
        pass
    run.close()
    bench.bank = ensure_bank(
        FeatureBank, spec, bank_key(spec, spec.head), trained, lambda: splits, CPU
    )
    return bench


# The checks that take longest: the fast suite runs them for methods with a state of their own.
LONG = {"resumable", "repeats", "learns", "ends", "captured"}
STATEFUL = {"ce", "crl", "adafocal", "mixup", "fedlas_ls", "tst", "mac_cal", "temperature"}


OTHERS = [name for name in METHODS if name not in STATEFUL]


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*support.sample(sorted(STATEFUL), 5), *support.sample(OTHERS, 3)])
def test_a_method_passes_every_check(name, bench):
    info, has_space = METHODS[name], name in SPACES
    is_whole = support.EVERY_CASE or name in STATEFUL
    why_not = {
        "order": info.pairs_by_order,
        "accuracy": not info.keeps_accuracy,
        "space": not has_space,
        "ends": not has_space,
    }
    for check in checks_of(info):
        if check.name in LONG and not is_whole:
            continue
        try:
            check.run(info, bench)
        except NotApplicableError:
            assert why_not[check.name], check.name
        except Exception as error:
            error.add_note(f"in check {check.name}")
            raise


NETWORK = """
import random, torch
from dataclasses import replace
from tune_calib.methods.ce import CrossEntropy
from tune_calib.spec.methods import METHODS, Params
from tune_calib.spec.space import SPACES
from tune_calib.spec.space import Space, uniform

class Broken(CrossEntropy):
    {body}

METHODS.register(replace(METHODS["ce"], name="broken", implementation=Broken))
SPACES.register(Space("broken", {{{space}}}))
"""
HEAD = """
import torch
from dataclasses import replace
from tune_calib.methods.retrain import Retrain
from tune_calib.spec.methods import METHODS

class Broken(Retrain):
    {body}

METHODS.register(replace(METHODS["retrain"], name="broken", implementation=Broken))
"""
POSTHOC = """
from dataclasses import replace
from tune_calib.methods.temperature import TemperatureScaling
from tune_calib.spec.methods import METHODS

class Broken(TemperatureScaling):
    {body}

METHODS.register(replace(METHODS["temperature"], name="broken", implementation=Broken))
"""
LOSS = "def loss(self, logits, labels, features, indices): return "
OWN = "super().loss(logits, labels, features, indices)"
# A method, the check that must find it, and what it must say.
BROKEN = {
    "no loss of a batch": (NETWORK, f"{LOSS}{OWN} * torch.ones(3)", "finite", "shape (3,)"),
    "a loss of NaN": (NETWORK, f"{LOSS}{OWN} * torch.nan", "finite", "the loss is nan"),
    "a wrong gradient": (NETWORK, f"{LOSS}{OWN}.detach() * {OWN}", "gradient", "the slope is"),
    "a weight by position": (
        NETWORK, f"{LOSS}{OWN} * (1 + labels[0])", "order", "for the shuffled batch",
    ),
    "a loss of nothing": (NETWORK, f"{LOSS}0 * {OWN}", "learns", "the loss goes from"),
    "a state that is not saved": (
        NETWORK,
        "count = 1\n    def loss(self, *a): self.count += 1; return super().loss(*a) * self.count",
        "resumable", "resumed after every epoch",
    ),
    "chance of its own": (NETWORK, f"{LOSS}{OWN} * random.random()", "repeats", "differs"),
    "a hidden NaN": (
        NETWORK,
        "def step(self, network, batch):\n"
        "        for p in network.parameters(): p.data.nan_to_num_()\n"
        "        return super().step(network, batch)",
        "nan", "although the network contains NaN",
    ),
    "an error": (NETWORK, f"{LOSS}logits.nothing()", "finite", "plugin.py line 10: AttributeError"),
    "a foreign space": (NETWORK, "pass", "space", "network.nothing, which is not a setting"),
    "a number that is read": (
        NETWORK, f"{LOSS}{OWN} * float(logits.detach().isfinite().all())", "captured",
        "its step reads a number of a tensor",
    ),
    "a shape that depends on data": (
        NETWORK, f"{LOSS}{OWN} + 0 * logits[logits > 0].sum()", "captured", "has a shape that",
    ),
    "chance within a step": (
        NETWORK, f"{LOSS}{OWN} * torch.rand((), generator=self.chance).to(logits)", "captured",
        "its step creates a tensor on the CPU, by aten.rand.generator",
    ),
    "a new tensor within a step": (
        NETWORK, f"{LOSS}{OWN} * torch.tensor(2.0, device=logits.device)", "captured",
        "its step copies numbers into a new tensor",
    ),
    "a number that changes": (
        NETWORK,
        "count = 1\n    def loss(self, *a): self.count += 1; return super().loss(*a) * self.count",
        "captured", "repeated from its first step",
    ),
    "a step that says it is not captured": (
        NETWORK, f"is_capturable = False\n    {LOSS}{OWN} * float(logits.detach().sum() != 0)",
        "captured", "it is not captured, because is_capturable is False",
    ),
    "a head with a number that changes": (
        HEAD,
        "count = 1\n    def loss(self, *a): self.count += 1; return super().loss(*a) * self.count",
        "captured", "with sgd, repeated from its first step",
    ),
    "a head that reads a number": (
        HEAD, "def loss(self, *a): return super().loss(*a) * float(a[0].detach().sum() < 0)",
        "captured", "its step reads a number of a tensor",
    ),
    "one loss for all heads": (HEAD, "def loss(self, *a): return super().loss(*a).mean()", "finite",
                               "loss of 2 heads has shape ()"),
    "heads that see each other": (
        HEAD, "def loss(self, *a): return super().loss(*a) + super().loss(*a).mean()",
        "independent", "depends on the other heads",
    ),
    "a NaN that spreads": (
        HEAD,
        "def training_logits(self, *a): z = super().training_logits(*a); return z + 0 * z.mean(0)",
        "nan", "another one d",
    ),
    "a temperature for all": (
        POSTHOC,
        "def fit(self, *a): super().fit(*a); t = self.state()['temperature']; t[:] = t.mean()",
        "independent", "depend on other classifiers fitted together",
    ),
    "a state of nothing": (POSTHOC, "def state(self): return {}", "kept", "KeyError"),
    "a number of its own": (
        POSTHOC,
        "own = 0\n    def fit(self, *a): super().fit(*a); self.own = 1\n"
        "    def transform(self, z): return (1 + self.own) * super().transform(z)",
        "kept",
        "gives different logits",
    ),
    "numbers asked for": (
        POSTHOC, "def apply(self, z, state): return z / state['temperature'].item()",
        "kept", "meta",
    ),
    "another class first": (
        POSTHOC, "def apply(self, z, state): return z.roll(1, -1)", "accuracy",
        "it changes the predicted class of plain logits",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", support.sample(BROKEN, 6))
def test_a_check_finds_the_method_that_fails_it(case, bench, tmp_path, monkeypatch):
    source, body, expected, said = BROKEN[case]
    space = (
        '"network.nothing": uniform(0, 1)'
        if expected == "space"
        else '"network.lr": uniform(.1, .2)'
    )
    (tmp_path / "plugin.py").write_text(source.format(body=body, space=space))
    before = plugins.in_use()
    plugins.load(str(tmp_path / "plugin.py"))
    tried = [c for c in checks_of(METHODS["broken"]) if c.name in (expected, "record")]
    monkeypatch.setattr(suite, "checks_of", lambda info: tried)
    try:
        found = {each.check.name: each for each in results("broken", bench)}
    finally:
        plugins.use(before)
    outcome = "skipped" if "is_capturable" in body else "failed"
    assert found[expected].outcome == outcome
    assert said in str(found[expected])
    assert found["record"].outcome == "passed"


class Taken(Params):
    """Settings that every slot of a network has already."""

    lr: float = 0.1
    epochs: int = 1


def test_settings_that_every_slot_has_are_named_apart():
    with pytest.raises(FailedCheckError, match="its setting epochs and lr exists in every network"):
        record(replace(METHODS["ce"], params=Taken), None)


@pytest.mark.parametrize("is_broken", [False, True])
def test_check_method_lists_failures_and_sets_the_exit_code(is_broken, tmp_path):
    body = BROKEN["a temperature for all"][1] if is_broken else "pass"
    (tmp_path / "plugin.py").write_text(POSTHOC.format(body=body))
    done = here("check-method", "broken", "--plugin", tmp_path / "plugin.py")
    lines = done.stdout.splitlines()
    assert len(lines) == len(checks_of(METHODS["temperature"])) + 1
    assert done.returncode == int(is_broken)
    failed = [line.split()[1] for line in lines if line.startswith("FAILED")]
    assert failed == (["independent"] if is_broken else [])
    # A method of no space: nothing to try of it.
    assert [line.split()[1] for line in lines if line.startswith("-")] == ["space", "ends"]


# That training repeats itself is a check of each method.
@pytest.mark.parametrize(
    "name", support.sample(["crl", "fedlas_ls", "mixup", "mac_cal", "vtst", "temperature"], 2)
)
def test_a_reset_actor_equals_a_fresh_one(name, trained, tmp_path):
    check_reset(name, trained, tmp_path)


def check_reset(name, trained, tmp_path):
    def config(seed, out):
        slots = small_spec().model_dump(mode="json")
        own = {"method": name, "seed": seed, "epochs": 1, "augment": "none"}
        match METHODS[name].kind:
            case "network":
                slots |= {"network": own, "data": {"train_fraction": 0.1}}
            case "head":
                slots["head"] = own
            case _:
                slots["posthoc"] = {"method": name}
        run = Provenance(out=str(tmp_path / out), store=str(trained.root), git_revision=None)
        return {**slots, "run": run.plain()}

    actor = trainable(name)(config(10, "first"))
    drive(actor)
    assert actor.reset(config(11, "reset"))
    drive(actor)
    network_id = actor.worker.spec.network_id
    actor.cleanup()
    if METHODS[name].kind == "network":
        # The fresh actor must train it again and not read it from the store.
        shutil.rmtree(trained.folder("networks", network_id))
    drive(trainable(name)(config(11, "fresh")))
    reset, fresh = (read_table(tmp_path / out, "trials") for out in ("reset", "fresh"))
    assert reset["actor_resets"].to_pylist() == [1]
    assert reset.drop_columns(UNSTABLE).equals(fresh.drop_columns(UNSTABLE))

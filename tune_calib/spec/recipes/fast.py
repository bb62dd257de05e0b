"""A small network of the papers' kind that fits CIFAR within an hour of one processor core."""

from tune_calib.spec.recipe import GENERAL, RECIPES, Recipe

RECIPES.register(
    Recipe(
        name="fast",
        title="a small network trained by one cycle",
        source="settings of fast-CIFAR programs",
        settings={
            "network": {
                "backbone": "fast_cnn",
                "epochs": 14,
                "batch_size": 256,
                "lr": 0.4,
                "nesterov": True,
                "weight_decay": 5e-4,
                "augment": "standard",
                "schedule": "one_cycle",
                "warmup": 0.2,
                "augment_until": 5 / 7,
            },
            "head": {"epochs": 20, "batch_size": 128},
        },
        datasets=("cifar10", "cifar100", *GENERAL),
        backbones=("fast_cnn",),
        note="Sizes of batch and network, one cycle and pools behind first convolutions "
        "are those of programs for fast training on CIFAR; nothing of theirs that touches the loss "
        "is taken over, so that every loss method can use it. The last four epochs have no "
        "augmentation, and fit the training images. An image costs .80 GFLOP of training "
        "(`torch.utils.flop_counter`). One core of an AMD EPYC without AMX trains 117 images a "
        "second in float32 and 241 with `network.precision` = `bf16`: 90 and 45 minutes a network.",
    )
)

"""Means and standard deviations that published programs normalise by, by the name of `data.norm`.

Per channel, of pixels scaled to [0, 1]; (mean, std).
"""

Constants = tuple[tuple[float, ...], tuple[float, ...]]

NORMS: dict[str, Constants] = {
    # The code of Mukhoti et al., which MbLS, FeDLaS and AdaFocal share; for CIFAR-100 and SVHN too.
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    # TST and BalCAL.
    "cifar10_tst": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "cifar100_tst": ((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025)),
    # CRL.
    "cifar10_crl": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    # CRL, PLP and MIT.
    "cifar100_crl": ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # PLP and MIT on SVHN; what the weights of ViT-B/16 were trained with.
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}

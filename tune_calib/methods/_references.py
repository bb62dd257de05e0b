"""Facts of papers that several methods use: BibTeX entries and published settings."""

from typing import Any

GUO = """
@inproceedings{guo2017calibration,
  author = {Guo, Chuan and Pleiss, Geoff and Sun, Yu and Weinberger, Kilian Q.},
  title = {On Calibration of Modern Neural Networks},
  booktitle = {Proceedings of the 34th International Conference on Machine Learning},
  pages = {1321--1330},
  year = {2017},
  url = {https://arxiv.org/abs/1706.04599},
}
"""

JORDAHN = """
@inproceedings{jordahn2024decoupling,
  author = {Jordahn, Mikkel and Olmos, Pablo M.},
  title = {Decoupling Feature Extraction and Classification Layers for Calibrated Neural Networks},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  pages = {22530--22550},
  year = {2024},
  url = {https://arxiv.org/abs/2405.01196},
}
"""

MUKHOTI = """
@inproceedings{mukhoti2020calibrating,
  author = {Mukhoti, Jishnu and Kulharia, Viveka and Sanyal, Amartya and Golodetz, Stuart and
    Torr, Philip H. S. and Dokania, Puneet K.},
  title = {Calibrating Deep Neural Networks using Focal Loss},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33},
  pages = {15288--15299},
  year = {2020},
  url = {https://arxiv.org/abs/2002.09437},
}
"""

KULL = """
@inproceedings{kull2019beyond,
  author = {Kull, Meelis and Perello-Nieto, Miquel and K{\\"a}ngsepp, Markus and
    Silva Filho, Telmo and Song, Hao and Flach, Peter},
  title = {Beyond Temperature Scaling: Obtaining Well-Calibrated Multi-Class Probabilities with
    Dirichlet Calibration},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {32},
  year = {2019},
  url = {https://arxiv.org/abs/1910.12656},
}
"""

BERTA = """
@inproceedings{berta2026structured,
  author = {Berta, Eug{\\`e}ne and Holzm{\\"u}ller, David and Jordan, Michael I. and Bach, Francis},
  title = {Structured Matrix Scaling for Multi-Class Calibration},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  year = {2026},
  url = {https://arxiv.org/abs/2511.03685},
}
"""

ZHANG = """
@inproceedings{zhang2020mix,
  author = {Zhang, Jize and Kailkhura, Bhavya and Han, T. Yong-Jin},
  title = {Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep
    Learning},
  booktitle = {Proceedings of the 37th International Conference on Machine Learning},
  pages = {11117--11128},
  year = {2020},
  url = {https://arxiv.org/abs/2003.07329},
}
"""


def as_on_tiny(**values: Any) -> dict[str, dict[str, Any]]:
    """Return a paper's settings for Tiny-ImageNet, which FeDLaS also uses for CUB and Aircraft."""
    return {name: dict(values) for name in ("tiny_imagenet", "cub", "aircraft")}

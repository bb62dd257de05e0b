"""Import many models at once, from an HDF5 file or a folder in the layout of CalArena.

The arrays of a model are ``DATASET/MODEL/ROLE_SPLIT`` or ``DATASET/MODEL/SPLIT/ROLE``, e.g.
``cifar10/resnet110/probas_cal``. Below a folder, the path of a file without its suffix is the
beginning of the names of its arrays. If a split has logits and probabilities, logits are imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tune_calib.data.arrays import FORMATS, ROLES, Array, arrays_in
from tune_calib.engine.imports import check_files, check_name, write_import
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.store import Store
from tune_calib.progress import report_progress

_SPLITS = {"select": "select", "cal": "calib", "calib": "calib", "test": "test"}
_ROLES = {name: role for role, names in ROLES.items() for name in names}

Models = Mapping[str, Mapping[str, Sequence[str]]]
"""The files of each split of each model, as ``check_files`` takes them."""


def find_models(path: Path) -> Models:
    """Find the models of an HDF5 file or a folder by the names of their arrays."""
    models: dict[str, dict[str, list[str]]] = {}
    for name, array in _list_arrays(path):
        parent, _, leaf = name.rpartition("/")
        role, _, split = leaf.rpartition("_")
        if split not in _SPLITS:
            role = leaf
            parent, _, split = parent.rpartition("/")
        if parent and split in _SPLITS and role in _ROLES:
            files = models.setdefault(parent, {"select": [], "calib": [], "test": []})
            files[_SPLITS[split]].append(f"{_ROLES[role]}={array.path}:{array.name}")
    for splits in models.values():
        for split, arrays in splits.items():
            if any(array.startswith("logits=") for array in arrays):  # they are exact
                splits[split] = [array for array in arrays if not array.startswith("probs=")]
    if not models:
        raise UserError(
            f"{path} has no model; the names of its arrays must be DATASET/MODEL/probas_cal, "
            "labels_cal, probas_test and labels_test (logits_ for logits)"
        )
    return models


def _list_arrays(path: Path) -> Iterator[tuple[str, Array]]:
    if not path.is_dir():
        yield from arrays_in(path).items()
        return
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() not in FORMATS or not file.is_file():
            continue
        parent = file.relative_to(path).with_suffix("").as_posix()
        for name, array in arrays_in(file).items():
            is_named_by_file = file.suffix.lower() == ".npy"
            yield parent if is_named_by_file else f"{parent}/{name}", array


def import_models(
    name: str, models: Models, select: Sequence[str], store: Store, replace: bool
) -> list[str]:
    """Import models as ``NAME/DATASET/MODEL``; return a line for each that is refused."""
    refused = []
    for number, (model, files) in enumerate(models.items()):
        report_progress(f"importing {model}", number, len(models))
        try:
            check_name(f"{name}/{model}")
            select_files = select or files["select"]
            checked = check_files((), select_files, files["calib"], files["test"], head=())
            write_import(f"{name}/{model}", checked, store, replace=replace)
        except RefusedError:  # it concerns all of them, e.g. a full disk
            raise
        except UserError as error:
            refused.append(f"{model}: {error}")
    return refused

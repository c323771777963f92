"""What stages know of the model that writes for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from round_project import KEY, copy_of_round

from queen.errors import QueenError
from queen.lineage.artifact import write_json
from stages.base import GenerationParams
from stages.models import SPEAKER, speaker_of
from stages.preparing import prepare
from stages.registry import find_stage

ONE = {"weights": "a", "dtype": "float32"}


def test_vllm_has_its_place_and_says_that_it_is_not_built(tmp_path: Path) -> None:
    project = copy_of_round(tmp_path)
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["generation"] = {"kind": "vllm"}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    for name in (f"explain@{KEY}", f"recurse@{KEY}"):
        with pytest.raises(QueenError, match=r"generation\.kind: .*not built(.|\n)*generation=own"):
            prepare(*find_stage(name), project)
    assert "generation" not in prepare(*find_stage(f"filter@{KEY}"), project).identities


def test_the_precision_is_part_of_what_makes_a_text(tmp_path: Path) -> None:
    job = prepare(*find_stage(f"explain@{KEY}"), copy_of_round(tmp_path))
    assert job.identities["generation"] == {"kind": "own", "precision": "auto"}
    assert GenerationParams(precision="bfloat16").identity() != job.identities["generation"]


def test_who_wrote_is_one_where_all_shards_agree(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder, told in zip(folders, (ONE, ONE, {**ONE, "dtype": "bfloat16"}), strict=True):
        folder.mkdir()
        write_json(folder / SPEAKER, told)
    assert speaker_of(folders[:2]) == {"speaker": ONE}
    assert speaker_of(folders) == {"speaker": {"several": [ONE, {**ONE, "dtype": "bfloat16"}]}}
    assert speaker_of([]) == {}

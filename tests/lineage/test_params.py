"""Params: composed, checked, remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queen.lineage import params
from queen.lineage.params import ParamsError
from queen.lineage.yamlio import YamlError, dump_yaml, parse_yaml, read_yaml


def test_profile_and_value_are_composed_and_written(toy: Path) -> None:
    done = params.configure(toy, ["profile=mini", "filter.max_loss=0.05"])
    assert done.params["games"]["count"] == 7
    assert params.read_params(toy) == done.params
    assert done.params["round"]["filter"] == {"max_loss": 0.05}
    assert "written by queen configure" in (toy / "params.yaml").read_text()


def test_choices_stay_until_a_profile_is_named(toy: Path) -> None:
    params.configure(toy, ["games.count=9"])
    assert params.configure(toy, ["seed=4"]).params["games"]["count"] == 9
    assert params.configure(toy).choices == ("games.count=9", "seed=4")
    fresh = params.configure(toy, ["profile=smoke"])
    assert (fresh.params["games"]["count"], fresh.params["seed"]) == (3, 1)


def test_choosing_a_group_anew_drops_the_values_below_it(toy: Path) -> None:
    params.configure(toy, ["engine.command=mine"])
    assert params.configure(toy, ["engine=other"]).params["engine"]["command"] == "other"


def test_configuring_twice_leaves_the_file_untouched(toy: Path) -> None:
    params.configure(toy)
    before = (toy / "params.yaml").stat().st_mtime_ns
    assert params.configure(toy).changes == ()
    assert (toy / "params.yaml").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("profile=mni", ["'mni'", "profile=mini"]),
        ("games.cuont=3", ["'games.cuont'", "'games.count'"]),
        ("filter.maxloss=1", ["'round.filter.max_loss'"]),
        ("flter.max_loss=1", ["'round.filter.max_loss'"]),
        ("engin=other", ["'engine'"]),
        ("seed=many", ["seed", "int", "'many'"]),
        ("seed=true", ["expected int"]),
        ("games=3", ["expected dict", "count"]),
        ("games.tags=[1]", ["games.tags", "expected list"]),
        ("train.lr=fast", ["round.train.lr", "float"]),
        ("train.lr=.nan", ["round.train.lr", "float"]),
        ("seed", ["key=value"]),
        ("+seed=1", ["key=value"]),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    toy: Path, choice: str, words: list[str]
) -> None:
    before = (toy / "params.yaml").read_text()
    with pytest.raises(ParamsError) as caught:
        params.configure(toy, [choice])
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert (toy / "params.yaml").read_text() == before


def test_values_take_the_type_of_their_default(toy: Path) -> None:
    done = params.configure(
        toy, ["games.share=1", "train.lr=1e-4", "engine.command=12", "engine.options.Skill Level=3"]
    ).params
    assert done["games"]["share"] == 1.0
    assert isinstance(done["games"]["share"], float)
    assert done["round"]["train"]["lr"] == 1e-4
    assert done["engine"] == {"command": "12", "options": {"Skill Level": 3}}


@pytest.mark.parametrize("override", ["games=", "games.count=", "games.share=null"])
def test_nothing_is_no_value_of_what_has_one(toy: Path, override: str) -> None:
    with pytest.raises(ParamsError, match="found None"):
        params.configure(toy, [override])


def test_a_null_default_takes_a_path_with_an_equals_sign(toy: Path) -> None:
    done = params.configure(toy, ["games.source=/a/b=c.pgn.gz"]).params
    assert done["games"]["source"] == "/a/b=c.pgn.gz"


def test_a_refusing_check_leaves_params_as_they_were(toy: Path) -> None:
    def refuse(values: object) -> None:
        raise ParamsError("no")

    before = (toy / "params.yaml").read_text()
    with pytest.raises(ParamsError):
        params.configure(toy, ["seed=9"], check=refuse)
    assert (toy / "params.yaml").read_text() == before


def test_the_projects_own_tree_composes_in_every_profile() -> None:
    root = Path(__file__).parents[2]
    for profile in params.option_names(root / "params")["profile"]:
        composed = params.compose(root, [f"profile={profile}"])
        assert composed["profile"] == profile
        assert set(composed["round"]) == set(params.STEPS)


numbers = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | numbers | st.text(max_size=8)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@example({"\x85": "a\u2028b"})
@given(trees)
def test_yaml_is_read_as_it_was_written(tree: object) -> None:
    assert parse_yaml(dump_yaml(tree), "here") == tree


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_written_any_way_is_a_float(number: float) -> None:
    for text in (repr(number), f"{number:e}", f"{number:.3E}"):
        value = parse_yaml(text, "here")
        assert isinstance(value, float)
        assert value == float(text)


def test_a_key_given_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(YamlError, match=r"x\.yaml.*'a' stands there twice \(line 3\)"):
        read_yaml(path)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(YamlError, match=r"x\.yaml: the file is missing"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("a: [1\n")
    with pytest.raises(YamlError, match=r"x\.yaml: not YAML"):
        read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    "text",
    ["2020-13-45", "{[1, 2]: 3}", "9" * 5000, "[" * 4000],
    ids=["date", "key", "int", "deep"],
)
def test_what_yaml_itself_trips_over_is_named(text: str) -> None:
    with pytest.raises(YamlError, match=r"here: not YAML"):
        parse_yaml(text, "here")


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"a: caf\xe9\n")
    with pytest.raises(YamlError, match=r"x\.yaml: not UTF-8"):
        read_yaml(tmp_path / "x.yaml")

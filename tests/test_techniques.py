"""The catalogue of techniques can be read, and what it says fits the rest."""

import pytest

from evokernel.profile import Profile
from evokernel.proposers.techniques import Technique, catalogue

NAMES = tuple(catalogue())


def test_names_are_words_joined_by_hyphens():
    assert len(NAMES) >= 12
    assert all(name.replace("-", "").isalpha() and name == name.lower() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_entries_say_what_and_when_and_at_what_price(name):
    technique = catalogue()[name]
    assert technique.name == name
    for text in (technique.does, technique.helps, technique.costs):
        assert text.endswith(".")
        assert len(text) > 15
    assert technique.title
    assert not technique.title.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_bottlenecks_are_those_that_profiles_name(name):
    for bottleneck in catalogue()[name].bottlenecks:
        Profile(bound_by=bottleneck, roofline_share=None)
    assert catalogue()[name].bottlenecks


def test_a_technique_suits_its_families_and_backends():
    online = catalogue()["online-softmax"]
    assert online.suits("softmax", "cpp")
    assert not online.suits("elementwise", "cpp")
    anywhere = Technique(
        name="any", title="Any", does="", helps="", costs="", bottlenecks=(), backends=("cpp",)
    )
    assert anywhere.suits("contraction", "cpp")
    assert not anywhere.suits("contraction", "cuda")


def test_an_unknown_name_is_missing():
    assert "warp-drive" not in catalogue()
    with pytest.raises(KeyError):
        catalogue()["warp-drive"]

"""``streamq.__all__`` is what ``from streamq import *`` promises: every name there, once, public."""

import streamq
import streamq.testing


def test_every_name_resolves_and_stands_once_in_order() -> None:
    names = list(streamq.__all__)
    assert [name for name in names if not hasattr(streamq, name)] == []
    assert names == sorted(set(names))


def test_no_public_name_is_missing() -> None:
    own = {name for name, value in vars(streamq).items() if getattr(value, "__module__", "").startswith("streamq.")}
    assert sorted(name for name in own - set(streamq.__all__) if not name.startswith("_")) == []


def test_completion_in_the_test_framework_offers_what_is_public() -> None:
    assert dir(streamq.testing) == sorted(set(streamq.testing.__all__))
    assert [name for name in dir(streamq.testing) if not hasattr(streamq.testing, name)] == []

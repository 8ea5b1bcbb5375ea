"""``streamq.__all__`` is what ``from streamq import *`` promises: every name there, once, public."""

import streamq


def test_every_name_resolves_and_stands_once_in_order() -> None:
    names = list(streamq.__all__)
    assert [name for name in names if not hasattr(streamq, name)] == []
    assert names == sorted(set(names))


def test_no_public_name_is_missing() -> None:
    own = {name for name, value in vars(streamq).items() if getattr(value, "__module__", "").startswith("streamq.")}
    assert sorted(name for name in own - set(streamq.__all__) if not name.startswith("_")) == []

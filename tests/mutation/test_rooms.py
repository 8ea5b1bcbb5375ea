"""Faults in rooms drawn at random: each still is one, and their rooms are those that the seeds name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.each import each
from tests.mutation.comparisons.trying import of_room
from tests.mutation.queries import QUERIES
from tests.mutation.rooms import ROOMS, Entry, drawn, entries

ENTRIES = entries()


@pytest.mark.slow
@each(ENTRIES)
def test_a_fault_changes_a_function_of_its_room(entry: Entry) -> None:
    (edit,) = entry.mutant.edits
    assert edit.changes() and entry.mutant.query in QUERIES
    assert Path(entry.room) in [Path("streamq", room) for room in ROOMS]


def test_rooms_are_drawn_by_their_lines_and_at_most_twice() -> None:
    rooms = list(drawn(28, 60))
    assert rooms == list(drawn(28, 60)) and max(map(rooms.count, rooms)) == 2


def test_the_nearest_tests_of_a_room_are_in_its_folder_or_have_its_subject_in_their_names() -> None:
    assert of_room(Path("streamq/runtime/user_code")) == ["tests/runtime/user_code"]
    assert of_room(Path("streamq/patterns/operators")) == ["tests/patterns"]
    assert "tests/test_user_aggregates.py" in of_room(Path("streamq/user_code"))
    assert "tests/test_aggregates.py" in of_room(Path("streamq/aggregates"))
    assert of_room(Path("streamq")) == []

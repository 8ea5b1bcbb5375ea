from streamq.compiler.rules.projections import drop_identity_select
from streamq.operators import Select
from streamq.plan.expr import Col
from tests.compiler.rules.law import TRIPS, holds

K, V, W = Col("k"), Col("v"), Col("w")


def test_a_select_of_all_columns_in_order_goes() -> None:
    holds(drop_identity_select, Select(TRIPS, (("k", K), ("v", V), ("w", W))), TRIPS)


def test_an_order_a_name_and_a_choice_of_columns_stay() -> None:
    for columns in [(("v", V), ("k", K), ("w", W)), (("k", K), ("v", W), ("w", V)), (("k", K), ("v", V))]:
        assert drop_identity_select(Select(TRIPS, columns)) is None

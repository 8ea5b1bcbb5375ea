"""The public names, and the modules that they are loaded from when first used (:mod:`lazy_loader`); type checkers read it too."""

from . import functions as functions
from .aggregates.basic import avg as avg
from .aggregates.basic import count as count
from .aggregates.basic import first as first
from .aggregates.basic import last as last
from .aggregates.basic import max as max
from .aggregates.basic import min as min
from .aggregates.basic import sum as sum
from .aggregates.holistic import collect as collect
from .aggregates.holistic import count_distinct as count_distinct
from .aggregates.holistic import median as median
from .aggregates.holistic import percentile as percentile
from .aggregates.holistic import time_weighted_avg as time_weighted_avg
from .aggregates.variances import corr as corr
from .aggregates.variances import covar as covar
from .aggregates.variances import covar_pop as covar_pop
from .aggregates.variances import stddev as stddev
from .aggregates.variances import stddev_pop as stddev_pop
from .aggregates.variances import var as var
from .aggregates.variances import var_pop as var_pop
from .connectors.kafka import kafka as kafka
from .connectors.outside_table import table as table
from .connectors.stored_files import files as files
from .connectors.written_tables import merge_into as merge_into
from .connectors.written_tables import postgres as postgres
from .connectors.written_tables import sql_table as sql_table
from .errors import StreamqError as StreamqError
from .expressions import (
    col as col,
)
from .expressions import (
    duration as duration,
)
from .expressions import (
    end as end,
)
from .expressions import (
    lit as lit,
)
from .expressions import (
    start as start,
)
from .expressions import (
    when as when,
)
from .expressions import (
    window_end as window_end,
)
from .expressions import (
    window_start as window_start,
)
from .levels.compare_levels import compare_levels as compare_levels
from .patterns.operators.at_least import all_of as all_of
from .patterns.operators.at_least import any_of as any_of
from .patterns.operators.at_least import at_least as at_least
from .patterns.operators.at_least import at_most as at_most
from .patterns.operators.at_least import sequence as sequence
from .patterns.operators.repeat import repeat as repeat
from .patterns.pattern import cedr as cedr
from .plan.footprint import Expected as Expected
from .policies import level as level
from .policies import weak as weak
from .progress_policies import clock as clock
from .progress_policies import explicit as explicit
from .progress_policies import follow as follow
from .progress_policies import generate as generate
from .reading import from_json as from_json
from .run.run_verbs import explain_all as explain_all
from .run.run_verbs import publish as publish
from .run.run_verbs import result as result
from .run.run_verbs import run_all as run_all
from .run.session.findings import doctor as doctor
from .run.session.spark_session import session as session
from .run.storage.migrate import migrate as migrate
from .sources.edges import changes as changes
from .sources.edges import edges as edges
from .sources.insert_only import intervals as intervals
from .sources.insert_only import points as points
from .sources.insert_only import signal as signal
from .sources.literal import cti as cti
from .sources.literal import events as events
from .sources.literal import insert as insert
from .sources.literal import retract as retract
from .sources.physical import physical as physical
from .sources.physical import subscribe as subscribe
from .stream import Stream as Stream
from .user_code.module import filters_on as filters_on
from .user_code.module import mergeable as mergeable
from .user_code.module import one_output_per_group as one_output_per_group
from .user_code.module import order_insensitive as order_insensitive
from .user_code.module import time_bound as time_bound
from .user_code.repository import modules as modules
from .user_code.uda import uda as uda
from .user_code.udf import udf as udf
from .user_code.udo import udo as udo
from .user_code.udo import udso as udso

__version__: str

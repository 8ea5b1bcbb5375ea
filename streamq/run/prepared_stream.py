"""Prepare queries to run as a stream and start them: compile them, connect them to tables and a session, claim a checkpoint.

A changed query is compiled so that it goes on from the state in a checkpoint, if it can. A second run on one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamq.compiler.options import Options, Placement
from streamq.compiler.ports import why_spark_reads
from streamq.compiler.results import ResultColumns, Results, as_results, folder_columns, result_columns
from streamq.compiler.rules import RULES
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.compiler.streaming import StreamLowering, build_frame, check_streaming, stateful_host
from streamq.connectors.connector import Connector, Splits
from streamq.connectors.refreshed_rows import refreshed_frame
from streamq.errors import CheckpointError, PlanError, sentence, warn
from streamq.operators import JoinTable, Source
from streamq.operators.expansion import check_refreshable
from streamq.operators.input_table import as_dataframe
from streamq.plan.expr import fold
from streamq.plan.footprint import Expected
from streamq.plan.lowering import in_utc
from streamq.plan.node import Node, nodes, number_sources, tables_behind
from streamq.progress_policies import PartitionCtis
from streamq.run.batch.answers import as_frames, default_buckets, is_dataframe, is_unlimited
from streamq.run.failure import spark_errors
from streamq.run.pacing import Pacer, hops_of
from streamq.run.publication_sink import PublicationSink
from streamq.run.run_options import ADAPTIVE, BY_MICRO_BATCH, UNTIL_NO_INPUT_IS_LEFT, RunOptions, Trigger, trigger_of
from streamq.run.session.findings import check_sink_functions, master_of, session_of
from streamq.run.session.spark_session import prepare_for_streams, warn_of_tasks
from streamq.run.sinks import DataSourceSink, DividedFolder, Sink, SplitWriter
from streamq.run.status.run_status import REPORTS, RESULTS
from streamq.run.storage.checkpoint import END_OF_INPUT, Checkpoint, Claim, ClockRows, identity_of, ticking_clock
from streamq.run.storage.files import WRITABLE, read_line, write_line
from streamq.run.storage.raw_files import folder_name
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.identity import MIGRATE, Identity, OtherLayout, fit_to_state
from streamq.runtime.hosts.result_rows import INSERTED, RETRACTED, SENT


def compile_to_fit(plan: Results, options: Options, stored: Identity | None) -> tuple[StagedPlan, Identity]:
    """Compile queries so that they go on from a stored state, if there is one; return the program and its identity.

    ``plan`` holds them as they were written, with their sources numbered. Operators stay in the stages that have their state. If
    they do not fit, they are compiled for the input that was expected when the state began, which has decided the order of its
    joins; then without one of the rules that change what an operator keeps by what stands above or beside it, and last without
    all of these. If they fit in no way, it is the first.
    """
    if stored is None:
        program = compile_stages(plan, options)
        return program, identity_of(program)
    by_name = {operator.name: operator.stage for operator in stored.operators}
    partials = {operator.name: frozenset(dict(operator.partials)) for operator in stored.operators if operator.partials}
    placement = Placement(by_name=by_name, stages=stored.stages, sources=stored.sources, partials=partials)
    before = Expected.from_json(stored.expected) if stored.expected else None
    programs = []
    crossing = [rule for rule in RULES if rule.crosses_state]
    for expected, without in (
        (options.expected, []),
        *((before, some) for some in ([], *([r] for r in crossing), crossing)),
    ):
        rules = [rule for rule in RULES if rule not in without]
        program = compile_stages(plan, replace(options, placement=placement, expected=expected), rules)
        programs.append((program, identity_of(program).with_number(stored)))
        if not fit_to_state(stored, programs[-1][1]).misfits:
            return programs[-1]
    return programs[0]


@dataclass(frozen=True, kw_only=True)
class PreparedStream:
    """Compiled queries with their tables as DataFrames, streaming ones for their sources, and a session that can run them.

    Workers read the rows of ``splits``, by a source's table, and not its DataFrame. ``spark_reads`` has the reasons
    why Spark reads others.

    ``written`` are the queries as the user wrote them. ``stored`` is the identity of the checkpoint, None if it is new, and
    ``begun`` the one that they go on from, None before any input. ``clock`` gives the time of day, if a source follows it.
    """

    options: RunOptions
    spark: SparkSession
    written: Results
    program: StagedPlan
    identity: Identity
    stored: Identity | OtherLayout | None
    begun: Identity | None
    tables: Mapping[str, DataFrame]
    splits: Mapping[str, Splits]
    spark_reads: Mapping[str, str]
    clock: ClockRows

    @cached_property
    def rows(self) -> DataFrame:
        """The rows of results, late rows and totals, as ``build_frame`` returns them; a run may start them twice.

        Creates the control folder, if there is to be one.
        """
        folder = self.options.control_folder
        if folder is not None:
            folder.create(self.spark)
        with in_utc(self.spark):
            control = None if folder is None else folder.stream(self.spark)
            clock = self.clock(self.spark) if self.program.clock_policies else None
            lowering = StreamLowering(self.program, self.tables, splits=self.splits)
            rows = build_frame(lowering, stateful_host(self.identity), control=control, clock=clock)
        if any(result.egress.stamped for result in self.program.results):
            # Spark keeps this instant in the checkpoint, so a micro-batch that is repeated has it again
            rows = rows.withColumn(SENT, F.current_timestamp())
        return rows

    @cached_property
    def outputs(self) -> list[tuple[ResultColumns, Sink]]:
        """The columns that each sink takes, in the order of the results; last the folder that several results share.

        The sinks are as they write in a run on the checkpoint. Raises PlanError for results that cannot share the folder.
        """
        program, requests = self.program, self.options.results
        packed = program.packs_results
        triples = list(zip(program.results, requests, self.options.sinks, strict=True))
        divided = {str(one.division): result for result, one, sink in triples if isinstance(sink, DividedFolder)}
        outputs = [
            (result_columns(result, packed=packed, preimages=sink.takes_preimages), sink)
            for result, _, sink in triples
            if not isinstance(sink, DividedFolder)
        ]
        if divided:
            assert self.options.folder is not None
            columns = folder_columns(divided, self.options.verb)
            if not packed:
                ((name, result),) = divided.items()
                columns = result_columns(result, packed=False, division=name)
            outputs.append((columns, DividedFolder(self.options.folder)))
        checkpoint = self.options.checkpoint
        return outputs if checkpoint is None else [(c, sink.placed(c, checkpoint)) for c, sink in outputs]

    @property
    def is_outdated(self) -> bool:
        """True if a micro-batch has come since on the checkpoint that has changed what queries go on from."""
        assert self.options.checkpoint is not None
        checkpoint = Checkpoint(self.spark, self.options.checkpoint)
        stored = checkpoint.stored()
        return stored != self.stored or (self.begun is None and isinstance(stored, Identity) and checkpoint.has_begun())

    @property
    def reads_all_at_once(self) -> bool:
        """True if the first micro-batch of "available_now" brings all input: no clock ticks, and no source has limits."""
        streams = [table for table in self.tables.values() if table.isStreaming]
        return not self.program.clock_policies and all(map(is_unlimited, streams))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that Spark needs to start a query; a run starts it once, and once more if its input ends.

    ``is_split``: rows are written micro-batch by micro-batch, by streamq and not by a sink of Spark's; only then may there be a
    ``pacer``.
    """

    prepared: PreparedStream
    checkpoint: Checkpoint
    trigger: Trigger
    is_split: bool
    pacer: Pacer | None = None

    @property
    def ends_by_itself(self) -> bool:
        """True if the run ends once no input is left."""
        return self.trigger == UNTIL_NO_INPUT_IS_LEFT

    def start(self) -> StreamingQuery:
        """Start the query on its checkpoint, into its sink, or by a SplitWriter into several."""
        options, rows, outputs = self.prepared.options, self._counted_rows(), self.prepared.outputs
        if self.is_split:
            folder = options.late_sink
            late_sink = None if folder is None else DataSourceSink("parquet", {"path": folder})
            columns, sinks = zip(*outputs, strict=True)
            writer = SplitWriter(columns, sinks, late_sink, self.pacer).start(rows.writeStream)
        else:
            ((result, sink),) = outputs
            writer = sink.start(result.read(rows).writeStream)
        if options.name:
            writer = writer.queryName(options.name)
        writer = writer.trigger(**self.trigger) if self.trigger else writer
        return writer.outputMode("append").option("checkpointLocation", self.checkpoint.path).start()

    def _counted_rows(self) -> DataFrame:
        """Return the rows of the results; Spark's reports have their counts, and the texts of the buckets' reports.

        Spark plans the observed columns in each micro-batch, so the texts are collected, and what they hold is summed up here.
        """
        # NULL for a CTI, which has an empty lifetime
        weight = F.when(F.col(RE) > F.col(LE), F.col(WEIGHT))
        signed = {"inserted": F.greatest(weight, F.lit(0)), "retracted": F.greatest(-weight, F.lit(0))}
        if self.prepared.program.packs_results:
            signed = {"inserted": F.col(INSERTED), "retracted": F.col(RETRACTED)}
        counts: list[Column] = [F.sum(rows).alias(name) for name, rows in signed.items()]
        for name, channel in REPORTS.items():
            counts.append(F.collect_list(F.when(F.col("__channel") == channel, F.col("__report"))).alias(name))
        return self.prepared.rows.observe(RESULTS, *counts)


def _warn_of_quarantine(program: StagedPlan, verb: str) -> None:
    """Warn of modules with ``on_error="quarantine"`` in a run without a late sink, where their first failure fails the query."""
    modules = program.quarantining
    if modules and not program.options.late_output:
        what = f"on_error='quarantine' of {', '.join(modules)} has no effect here, for there is no late_sink"
        hint = "Give late_sink, a path." if verb != "to_stream" else "A run has late_sink: .run(..., late_sink=path)."
        warn(sentence(verb, f"{what}: the first event that fails there fails the query", "", hint))


def prepare(options: RunOptions, clock: ClockRows = ticking_clock) -> PreparedStream:
    """Compile queries for their session; raise PlanError, SessionError or CheckpointError if they cannot run as requested.

    The session gets the settings that streams need. Warns of many more tasks than run at once, and of modules whose failures
    are to be set aside where there is no late sink. Without ``buckets``, the number is that of the checkpoint, or a default.
    """
    verb, buckets = options.verb, options.buckets
    written, compiled_with = options.compiled_with()
    numbered, names = number_sources(written)
    bound = tables_behind([result.query for result in options.results], verb)
    spark = session_of(bound.values(), verb)
    tables = {
        names[name]: _at_start_position(spark, options, table, names[name])
        for name, table in bound.items()
        if name in names
    }
    prepare_for_streams(spark, verb)
    warn_of_tasks(spark, verb)
    checkpoint = None if options.checkpoint is None else Checkpoint(spark, options.checkpoint)
    stored = None if checkpoint is None else checkpoint.stored()
    if buckets is None and isinstance(stored, Identity):
        buckets = stored.buckets
    compiled_with = replace(
        compiled_with,
        buckets=buckets or default_buckets(spark),
        ansi=spark.conf.get("spark.sql.ansi.enabled") == "true",
    )
    plan = _awaiting_parts(spark, numbered, tables)
    begun = stored if checkpoint is not None and isinstance(stored, Identity) and checkpoint.has_begun() else None
    program, identity = compile_to_fit(plan, compiled_with, begun)
    _warn_of_quarantine(program, verb)
    spark_reads = why_spark_reads(program, tables)
    columns = {r.source.table: [field.name for field in r.source.columns] for r in program.sources if r.source}
    splits = {name: tables[name].splits(spark, columns[name]) for name, reason in spark_reads.items() if not reason}
    return PreparedStream(
        options=options,
        spark=spark,
        written=written,
        program=program,
        identity=identity,
        stored=stored,
        begun=begun,
        tables=_input_frames(spark, options, plan, tables),
        splits=splits,
        spark_reads=spark_reads,
        clock=clock,
    )


def _awaiting_parts(spark: SparkSession, plan: Results, tables: Mapping[str, Any]) -> Results:
    """Return the plan with sources that wait for the parts that their connectors have now, where they wait for all."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        node = node.with_children(inputs)
        if not (isinstance(node, Source) and isinstance(table := tables[node.table], Connector)):
            return node
        progress = node.policy.progress
        if not (isinstance(progress, PartitionCtis) and progress.awaited is not None):
            return node
        awaiting = replace(progress, awaited=table.awaited_parts(spark))
        return replace(node, policy=replace(node.policy, progress=awaiting))

    return as_results(fold(plan, visit))


def streaming_rows(options: RunOptions, clock: ClockRows = ticking_clock) -> DataFrame:
    """Return the only result, in its user's columns, as a streaming DataFrame; raise what ``prepare`` raises."""
    with spark_errors(options.verb, "Spark does not plan the query"):
        prepared = prepare(options, clock)
        ((columns, _),) = prepared.outputs
        return columns.read(prepared.rows)


def _input_frames(
    spark: SparkSession, options: RunOptions, plan: Node, tables: Mapping[str, Any]
) -> dict[str, DataFrame]:
    """Return the DataFrames of a plan's sources, which are streaming, and of its static tables, which are not.

    Raises PlanError for a source that is not streaming.
    """
    frames: dict[str, DataFrame] = {}
    for node in nodes(plan):
        if isinstance(node, Source):
            table = tables[node.table]
            frames[node.table] = _stream_of(spark, options, node, table)
            check_streaming(node, frames[node.table], options.verb)
        elif isinstance(node, JoinTable):
            table = tables[node.table]
            if node.refresh is not None:
                check_refreshable(table, options.verb)
                frames[node.table] = refreshed_frame(spark, table, node.refresh / 1_000_000)
            else:
                frames |= as_frames({node.table: table}, options.verb)
    return frames


def _stream_of(spark: SparkSession, options: RunOptions, source: Source, table: Any) -> DataFrame:
    """Return the rows of a source's table as a stream; a literal table is written once, into files beside the control folder.

    Raises CheckpointError if an earlier run has read other rows there or Spark cannot use the folder, PlanError without a
    control folder.
    """
    if is_dataframe(table):
        frame: DataFrame = table
        return frame
    if isinstance(table, Connector):
        return table.stream(spark)
    name = source.shown_name()
    control = options.control_folder
    if control is None:
        reason = "a checkpoint reads them from a folder that must be there as long as it is"
        raise PlanError(options.verb, f"source {name} has literal rows", reason, "Give control='a folder'.")
    path = f"{control.path.rstrip('/')}-literal-{name}"
    frame = as_dataframe(spark, table)
    written = _written_rows(spark, options.verb, path)
    if written is None:
        with spark_errors(options.verb, f"Spark cannot read or write {path}", WRITABLE, CheckpointError):
            frame.coalesce(1).write.mode("overwrite").parquet(path)
    elif repr(written) != repr(frame.toArrow().to_pylist()):
        wrong = f"the rows of {name} are not those of the checkpoint"
        difference = f"the checkpoint's run has read {len(written)} row(s), now there are {table.num_rows}"
        hint = "Use a new checkpoint, or a DataFrame where rows are added."
        raise CheckpointError(options.verb, wrong, difference, hint)
    return spark.readStream.schema(frame.schema).parquet(path)


def _at_start_position(spark: SparkSession, options: RunOptions, table: Any, name: str) -> Any:
    """Return a source's table from where its checkpoint has begun, if that is kept, else from now on.

    Raises PlanError without a control folder, beside which it is kept, and SourceError if it is another table by now.
    """
    if not isinstance(table, Connector) or (start_position := table.start_position) is None:
        return table
    control = options.control_folder
    if control is None:
        reason = "a checkpoint keeps where it has begun"
        raise PlanError(options.verb, f"source {name} is a {table.title}", reason, "Give control='a folder'.")
    path = f"{control.path.rstrip('/')}-position-{name}"
    begun = read_line(spark, path)
    if begun is None:
        begun = start_position.now()
        write_line(spark, path, begun)
    return start_position.rows_from(begun)


def _written_rows(spark: SparkSession, verb: str, path: str) -> list[dict[str, Any]] | None:
    """Return the rows that an earlier run has written; None if there is no file."""
    with spark_errors(verb, f"Spark cannot read or write {path}", WRITABLE, CheckpointError):
        try:
            return spark.read.parquet(path).toArrow().to_pylist()
        except AnalysisException:
            # there is no file yet
            return None


def fitted(options: RunOptions) -> PreparedStream:
    """Prepare queries, and what their rows go into; raise the error of what does not fit that, or the checkpoint, as it is."""
    prepared = prepare(options)
    if options.trigger == ADAPTIVE and master_of(prepared.spark).startswith("sc://"):
        wrong, reason = "trigger='adaptive' does not go through Spark Connect", "the server runs the micro-batches"
        raise PlanError(options.verb, wrong, reason, "Give a duration, as '10 seconds', or leave the trigger out.")
    if options.calls_python:
        check_sink_functions(prepared.spark, options.verb)
    for columns, sink in prepared.outputs:
        sink.create(columns, options.verb)
    if prepared.begun is not None:
        assert options.checkpoint is not None
        Checkpoint(prepared.spark, options.checkpoint).check_not_ended(options.verb)
        fit = fit_to_state(prepared.begun, prepared.identity)
        fit.check(options.verb)
        _check_publications(prepared, prepared.begun, fit.new_results)
    return prepared


def _check_publications(prepared: PreparedStream, before: Identity, new_results: Collection[int]) -> None:
    """Raise CheckpointError for what would be published from now on if it may take back rows that come before that."""
    is_strong, written = prepared.program.options.level.block is None, dict(before.folders)
    for number, (request, sink) in enumerate(zip(prepared.options.results, prepared.options.sinks, strict=True)):
        begins = number in new_results or any(folder_name(folder) not in written for folder in sink.folders)
        traits, operators = request.query.plan.traits, prepared.identity.results[number].operators
        takes_back = not is_strong or traits.retracts or traits.moves_ends
        shared = [o.title for o in before.operators if o.name in operators]
        if isinstance(sink, PublicationSink) and begins and takes_back and shared:
            wrong = f"{request.division!r} would take back rows that are not published"
            hint = "Publish it in a run of its own, over sq.subscribe(...) of what this one publishes, or on a new checkpoint."
            raise CheckpointError(prepared.options.verb, wrong, f"{shared[0]} has sent some", hint)


def claimed(prepared: PreparedStream) -> tuple[Launch, Claim]:
    """Claim the checkpoint for queries; return what starts them, and the claim."""
    options, stored = prepared.options, prepared.stored
    assert options.checkpoint is not None
    trigger, checkpoint = trigger_of(options.trigger), Checkpoint(prepared.spark, options.checkpoint)
    before = dict(stored.folders) if isinstance(stored, Identity) else {}
    forms = options.folder_forms(tuple(before.items()), checkpoint)
    is_split = options.is_split or any(form.endswith(BY_MICRO_BATCH) for _, form in forms)
    claim = checkpoint.claim(replace(prepared.identity, folders=forms), stored, options.verb)
    for _, sink in prepared.outputs:
        has_rows = claim.has_begun and any(folder_name(folder) in before for folder in sink.folders)
        sink.begin(options.verb, has_rows=has_rows)
    for number in claim.new_results:
        # their operators with state have not seen the rows before
        wrong = f"result {number + 1} begins where the checkpoint stands"
        warn(sentence(options.verb, f"{wrong}: earlier rows are not in it", "", f"{MIGRATE}."))
    if claim.is_ending:
        if not (claim.has_begun or prepared.reads_all_at_once):
            wrong, observed = (
                "the checkpoint's input was to end in the first micro-batch",
                "the sources may have several",
            )
            hint = "Use a new checkpoint: nothing has been read here."
            raise CheckpointError(options.verb, wrong, observed, hint)
        # at most one micro-batch remains, with the rows that the end of the input makes final
        trigger = UNTIL_NO_INPUT_IS_LEFT
    elif claim.is_new and options.finish and prepared.reads_all_at_once:
        checkpoint.control.send(prepared.spark, END_OF_INPUT)
        claim = replace(claim, is_ending=True)
    launch = Launch(
        prepared=prepared,
        checkpoint=checkpoint,
        trigger=trigger,
        is_split=is_split,
        pacer=Pacer(hops_of(options.plans, options.verb), prepared.program) if options.trigger == ADAPTIVE else None,
    )
    return launch, claim

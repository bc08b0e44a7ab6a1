"""The audit's tables: all their columns in one place, for the job that writes them and for their readers.

Times are milliseconds since 1970, of the members' own clocks. Offsets are numbers; `first` is inclusive, `next`
exclusive, a position or an end the next offset to be read or written. Any column may be null unless it says otherwise
by "number of". docs/operations/audit.md explains the words.
"""

from __future__ import annotations

from holdfast.tools.audit_report.columns import Table, table

MEMBERS = table(
    "members",
    "one row per run; a run is one start of one process",
    """
    group              string   the consumer group
    member             string   its name, for people
    run                string   one start of one process
    protocol           string   the rebalance protocol
    source             string   the source's class, or "loop"
    started_ms         long     its first event
    ended_ms           long     its last event
    ended              string   clean, unclean, killed or alive
    complete           boolean  whether it stopped with nothing in hand, and none of its events is missing
    events             long     number of events received
    missing            long     number of events lost on the way, as far as gaps in `seq` show
    dropped            long     number of events that the member dropped itself
    unreported         long     records that its stop event counts and no span reports; null without a stop event
    handled            long     number of executions
    skipped_position   long     number of records skipped because their offset was done
    skipped_key        long     number of records skipped because their key was done
    dead_lettered      long     number of records that went to a dead letter topic
    sent_back          long     number of records sent back to the broker
    failed             long     number of failed attempts
    client_skipped     long     number of records that the client had gone past, and gave when it was sent back
    share              double   its part of the group's records while it ran, 0 to 1
    skew               double   its records against an even share of the members running in each second; 1 = even
    """,
)

COVERAGE = table(
    "coverage",
    "one row per partition of a group",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    begin              long     where the group began
    covered_to         long     every offset from begin to here has an outcome
    position           long     the highest position that a member reported
    end                long     the log's end, as reported last
    lag                long     end - position
    handled            long     number of executions
    skipped_position   long     number of records
    skipped_key        long     number of records
    dead_lettered      long     number of records
    sent_back          long     number of records
    failed             long     number of failed attempts
    client_skipped     long     number of records that a client had gone past, and gave when it was sent back
    lost               long     number of offsets with this verdict
    unknown            long     number of offsets with this verdict
    pending            long     number of offsets with this verdict
    left               long     number of offsets with this verdict
    expired            long     number of offsets with this verdict
    repeated           long     number of executions beyond the first of each record
    """,
)

GAPS = table(
    "gaps",
    "ranges of offsets that no span covers; the log may have no record at some of them",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    first              long     offset
    next               long     offset, exclusive
    offsets            long     next - first: the largest possible count of records
    verdict            string   lost, unknown, pending, left or expired
    reason             string   passed, jumped, killed, incomplete, lag, reset or retention
    runs               array<string>  the runs that read there
    members            array<string>  their names
    after_ms           long     when the records just before it finished
    """,
)

DUPLICATES = table(
    "duplicates",
    "ranges of records that were executed more than once; one row per range and cause",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    first              long     offset
    next               long     offset, exclusive
    records            long     number of records in the range, at most
    executions         long     all executions of each of these records
    repeats            long     executions of each record due to this cause; records * repeats is the surplus
    cause              string   crash, hand-over, redelivery or reset
    runs               array<string>  the runs that executed them, in the order of time
    members            array<string>  their names
    first_ms           long     when the first execution finished
    again_ms           long     when the last one finished
    """,
)

DUPLICATE_KEYS = table(
    "duplicate_keys",
    "keys that were executed more than once, if events carry keys",
    """
    group              string   the consumer group
    topic              string   topic
    key                string   the business key, or its digest
    executions         long     number of executions
    offsets            long     number of executed records with this key
    cause              string   producer, repeat or both
    partition          string   of the first execution
    offset             long     of the first execution
    again_partition    string   of the last execution
    again_offset       long     of the last execution
    first_ms           long     when the first execution was reported
    again_ms           long     when the last one was reported
    """,
)

OWNERSHIP = table(
    "ownership",
    "who owned a partition, and when; one row for each time that a member got one",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    member             string   its name
    run                string   its run
    epoch              long     the ownership's epoch in the store
    trigger            string   assigned or reset
    from_ms            long     when it got the partition
    to_ms              long     when it gave up or lost the partition, or its last event; null: it still has it
    ended_by           string   revoked, lost, leave, session lost, retaken, stopped, killed; null: it still has it
    position           long     where it was told to begin
    end                long     the log's end at that time
    said               long     the last position that it reported
    first              long     the lowest offset that it reported
    next               long     the highest one, exclusive
    records            long     number of records that it reported, without failed attempts
    """,
)

REBALANCES = table(
    "rebalances",
    "assignments and revocations of a group at about the same time",
    """
    group              string   the consumer group
    rebalance          long     0, 1, 2 ... in that group
    began_ms           long     its first event
    ended_ms           long     its last event
    triggers           array<string>  the triggers that members reported
    members            long     number of runs that gained or gave up partitions
    gained             long     number of partitions that were assigned
    given              long     number of partitions that were revoked
    moved              long     number of partitions whose owner changed
    stop_ms            long     the longest time around it without a finished record; null: no lag, or none is known
    pause_ms           long     the longest pause of a partition that moved, with records waiting
    lag                long     records that waited in the assigned partitions
    recovered_ms       long     from its first assignment until that lag was gone; null: not before the next rebalance
    steady_per_s       double   records per second of the gained partitions, before
    peak_per_s         double   the most records of these partitions that finished in one second, after
    peak_ratio         double   peak divided by steady
    drained            long     records, as members report them
    abandoned          long     records
    handed_back        long     records
    suppressed         long     duplicates that did not run, as members report them
    """,
)

MOVES = table(
    "moves",
    "partitions that were assigned in a rebalance",
    """
    group              string   the consumer group
    rebalance          long     number in the group
    topic              string   topic
    partition          string   partition
    from_member        string   the owner before; null: none
    from_run           string   its run
    to_member          string   the new owner
    to_run             string   its run
    moved              boolean  whether the new owner is another run
    given_ms           long     when it was given up or lost, or its owner's last event
    taken_ms           long     when it was assigned
    position           long     where the new owner began
    end                long     the log's end at that time
    lag                long     records that waited: end - position
    """,
)

PAUSES = table(
    "pauses",
    "how long assigned partitions paused",
    """
    group              string   the consumer group
    rebalance          long     number in the group
    topic              string   topic
    partition          string   partition
    from_member        string   the owner before
    to_member          string   the new owner
    last_ms            long     when the last record before the pause finished
    first_ms           long     when the first record after it finished
    pause_ms           long     first_ms - last_ms, not below 0
    waiting            boolean  whether records waited; if not, the partition was idle
    recovered_ms       long     from the assignment until the lag of that moment was gone
    cut                boolean  whether the partition moved again before that
    """,
)

LAG = table(
    "lag",
    "samples of the members' positions",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    member             string   its owner
    run                string   its run
    at_ms              long     when the member reported it
    position           long     everything below is done
    end                long     the log's end
    lag                long     end - position
    in_flight          long     records read and not finished
    """,
)

INTAKE = table(
    "intake",
    "finished records by second and member; the records of a span count as spread evenly over its time",
    """
    group              string   the consumer group
    member             string   its name
    run                string   its run
    second_ms          long     the start of the second
    records            double   number of records with an outcome, without failed attempts
    handled            double   executions among these
    """,
)

SUMMARY = table(
    "summary",
    "one row per group",
    """
    group              string   the consumer group
    from_ms            long     the first event
    to_ms              long     the last event
    members            long     number of runs
    killed             long     number of runs that fell silent
    unheard            long     number of runs whose events cannot be read: a later version, a broken file
    over               boolean  whether all runs stopped cleanly
    events             long     number of events
    unreadable         long     number of lines in the whole input that are not events: cut, or of another version
    missing            long     number of events lost on the way
    dropped            long     number of events that members dropped
    unreported         long     number of records that stop events count and no span reports
    partitions         long     number of partitions
    handled            long     number of executions
    skipped            long     number of records skipped as duplicates
    dead_lettered      long     number of records that went to a dead letter topic
    lost               long     number of offsets with this verdict
    unknown            long     number of offsets with this verdict
    pending            long     number of offsets with this verdict
    left               long     number of offsets with this verdict
    expired            long     number of offsets with this verdict
    crash              long     number of surplus executions with this cause
    hand_over          long     number of surplus executions with this cause
    redelivery         long     number of surplus executions with this cause
    reset              long     number of surplus executions with this cause
    producer           long     number of surplus executions of keys that were sent more than once; null without keys
    rebalances         long     number of rebalances
    moved              long     number of partitions that moved
    stop_ms            long     the longest time in which no member finished a record, around a rebalance with lag
    pause_ms           long     the longest pause of a partition that moved, with records waiting
    skew               double   the highest skew of a member
    """,
)

TABLES: dict[str, Table] = {
    each.name: each
    for each in (
        SUMMARY,
        MEMBERS,
        COVERAGE,
        GAPS,
        DUPLICATES,
        DUPLICATE_KEYS,
        OWNERSHIP,
        REBALANCES,
        MOVES,
        PAUSES,
        LAG,
        INTAKE,
    )
}

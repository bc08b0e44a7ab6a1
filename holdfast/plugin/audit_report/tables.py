"""The audit's tables: all their columns in one place, for the job that writes them and for those who read them.

Times are milliseconds since 1970, of the members' own clocks. Offsets are numbers; `first` is inclusive, `next`
exclusive, a position or an end the next offset to be read or written. Any column may be null unless it says otherwise
by "number of". docs/operations/audit.md explains the words.
"""

from __future__ import annotations

from holdfast.plugin.audit_report.columns import Table, table

MEMBERS = table(
    "members",
    "one row a run: one start of one process",
    """
    group              string   the consumer group
    member             string   its name, for people
    run                string   one start of one process
    protocol           string   the rebalance protocol
    source             string   the source's class, or "loop"
    started_ms         long     its first event
    ended_ms           long     its last event
    ended              string   clean, unclean, killed or alive
    complete           boolean  whether it has told everything, and everything came
    events             long     number of events that came
    missing            long     number of events that were lost on the way, as far as holes in `seq` tell
    dropped            long     number of events that it gave up itself
    unreported         long     records that its last word counts and no span tells of; null without a last word
    handled            long     number of records: executions
    skipped_position   long     number of records that were skipped, since their offset was done
    skipped_key        long     number of records that were skipped, since their key was done
    dead_lettered      long     number of records
    sent_back          long     number of records
    failed             long     number of failed attempts
    share              double   its records of all the group's, while it was at work; 0 to 1
    skew               double   its records against an even share among those at work in each second; 1 = even
    """,
)

COVERAGE = table(
    "coverage",
    "one row a partition of a group",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    begin              long     where the group began
    covered_to         long     everything from begin to here has an outcome
    position           long     the highest position that anybody said
    end                long     the log's end, as heard last
    lag                long     end - position
    handled            long     number of records: executions
    skipped_position   long     number of records
    skipped_key        long     number of records
    dead_lettered      long     number of records
    sent_back          long     number of records
    failed             long     number of failed attempts
    lost               long     number of offsets with that verdict
    unknown            long     number of offsets
    pending            long     number of offsets
    left               long     number of offsets
    expired            long     number of offsets
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
    offsets            long     next - first: at most so many records
    verdict            string   lost, unknown, pending, left or expired
    reason             string   passed, jumped, killed, incomplete, lag, reset or retention
    runs               array<string>  those that read there
    members            array<string>  their names
    after_ms           long     when what lies just before it had ended
    """,
)

DUPLICATES = table(
    "duplicates",
    "ranges of records that were executed more than once; one row a range and cause",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    first              long     offset
    next               long     offset, exclusive
    records            long     number of records in it, at most
    executions         long     of each of these records, in all
    repeats            long     of these, executions that are due to this cause: records * repeats is the surplus
    cause              string   crash, hand-over, redelivery or reset
    runs               array<string>  that executed them, in the order of their time
    members            array<string>  their names
    first_ms           long     when the first execution had ended
    again_ms           long     when the last one had ended
    """,
)

DUPLICATE_KEYS = table(
    "duplicate_keys",
    "keys that were executed more than once; where events carry keys",
    """
    group              string   the consumer group
    topic              string   topic
    key                string   the business key, or its digest
    executions         long     number of executions
    offsets            long     number of records that carry it and were executed
    cause              string   producer, repeat or both
    partition          string   of the first execution
    offset             long     of the first execution
    again_partition    string   of the last execution
    again_offset       long     of the last execution
    first_ms           long     when the first was told
    again_ms           long     when the last was told
    """,
)

OWNERSHIP = table(
    "ownership",
    "who had a partition, and when: one row for each time that a member got one",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    member             string   its name
    run                string   its run
    epoch              long     as the store counts
    trigger            string   assigned or reset
    from_ms            long     when it got the partition
    to_ms              long     when it gave it or lost it, or was heard last; null: it has it still
    ended_by           string   revoked, lost, leave, session lost, retaken, stopped, killed; null: it has it still
    position           long     where it was to begin
    end                long     the log's end then
    said               long     the last position that it said
    first              long     the lowest offset that it told of
    next               long     the highest, exclusive
    records            long     number of records that it told of, failed attempts left out
    """,
)

REBALANCES = table(
    "rebalances",
    "what changed hands in a group at about one time",
    """
    group              string   the consumer group
    rebalance          long     0, 1, 2 ... in that group
    began_ms           long     its first event
    ended_ms           long     its last event
    triggers           array<string>  that members named
    members            long     number of runs that gained or gave
    gained             long     number of partitions that were assigned
    given              long     number of partitions that were revoked
    moved              long     number of partitions with another owner after than before
    stop_ms            long     the longest time around it in which no member ended a record
    pause_ms           long     the longest pause of a partition that moved
    lag                long     records that waited where partitions were assigned
    recovered_ms       long     from its first assignment until that lag was worked off; null: not before the next one
    steady_per_s       double   records a second of the partitions gained, before
    peak_per_s         double   the most records of them that ended in one second after
    peak_ratio         double   peak against steady
    drained            long     records, as members report it
    abandoned          long     records
    handed_back        long     records
    suppressed         long     duplicates that were not executed, as members report it
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
    from_member        string   who had it before; null: nobody
    from_run           string   its run
    to_member          string   who got it
    to_run             string   its run
    moved              boolean  whether it is another run
    given_ms           long     when it was given or lost, or its owner heard last
    taken_ms           long     when it was assigned
    position           long     where the new owner began
    end                long     the log's end then
    lag                long     records that waited: end - position
    """,
)

PAUSES = table(
    "pauses",
    "how long partitions that were assigned stood still",
    """
    group              string   the consumer group
    rebalance          long     number in the group
    topic              string   topic
    partition          string   partition
    from_member        string   who had it before
    to_member          string   who got it
    last_ms            long     when the last record had ended before
    first_ms           long     when the first record had ended after
    pause_ms           long     first_ms - last_ms, not below 0
    waiting            boolean  whether records waited: if not, it was idle
    recovered_ms       long     from the assignment until the lag found then was worked off
    cut                boolean  it was not worked off before the partition went again
    """,
)

LAG = table(
    "lag",
    "samples: where members stood",
    """
    group              string   the consumer group
    topic              string   topic
    partition          string   partition
    member             string   its owner
    run                string   its run
    at_ms              long     when
    position           long     everything below is done
    end                long     the log's end
    lag                long     end - position
    in_flight          long     read and not settled
    """,
)

INTAKE = table(
    "intake",
    "records that ended, by second and member; those of a span are taken as spread evenly over its time",
    """
    group              string   the consumer group
    member             string   its name
    run                string   its run
    second_ms          long     where the second begins
    records            double   number of records with an outcome, failed attempts left out
    handled            double   of these, executions
    """,
)

SUMMARY = table(
    "summary",
    "one row a group",
    """
    group              string   the consumer group
    from_ms            long     the first event
    to_ms              long     the last event
    members            long     number of runs
    killed             long     number of runs that fell silent
    unheard            long     number of runs of which nothing could be read: a later version, a broken file
    over               boolean  whether all runs stopped cleanly
    events             long     number of events
    unreadable         long     number of lines in the whole input that are no events: cut, or of another version
    missing            long     number of events that were lost on the way
    dropped            long     number of events that members gave up
    unreported         long     number of records that last words count and no span tells of
    partitions         long     number of partitions
    handled            long     number of executions
    skipped            long     number of records that were skipped as duplicates
    dead_lettered      long     number of records
    lost               long     number of offsets
    unknown            long     number of offsets
    pending            long     number of offsets
    left               long     number of offsets
    expired            long     number of offsets
    crash              long     number of executions too many, by cause
    hand_over          long     number of executions
    redelivery         long     number of executions
    reset              long     number of executions
    producer           long     number of executions too many of keys that were sent more than once; null without keys
    rebalances         long     number of rebalances
    moved              long     number of partitions that moved
    stop_ms            long     the longest time without a record around a rebalance with lag
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

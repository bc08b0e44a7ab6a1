"""The error tree.

    HoldfastError
    ├── SettingError            a setting that cannot work; raised where it is written
    ├── MissingExtraError       an optional dependency is not installed
    ├── ClientUnusable          a client library is installed but cannot work here: the wrong one, or a part is missing
    ├── StateError              a call comes too late: an app is run twice, or changed while it runs
    ├── StoreError
    │   ├── StoreUnavailable    no answer; whether the call took effect is unknown (retriable)
    │   │   ├── Unconfirmed     an idempotent function has run, and the store has not answered that it is done
    │   │   └── StoreLockedOut  the store let this process in before, and refuses it now (retriable)
    │   └── StoreRefused        the server answers and refuses (password, version, eviction)
    │       └── AccessRefused   the user's credentials or rights are refused, or the server's certificate is not valid
    ├── SourceError
    │   ├── SourceUnavailable   the broker does not answer now (retriable)
    │   │   └── NoCoordinator   brokers answer, but none coordinates the group
    │   ├── SourceFatal         this client has ended; a new one may work (retriable)
    │   ├── NotAuthorised       the broker refuses these credentials
    │   ├── UnknownTopic        a topic that is subscribed to does not exist
    │   ├── TopicUnfit          a retry topic would lose records that wait in it
    │   ├── UnknownGroup        the broker has no such consumer group
    │   ├── StaticIdTaken       another process is the group's member of this static id
    │   ├── SubscriptionDiffers living members of the group subscribe to something else
    │   ├── ClusterDiffers      living members of the group are at another cluster
    │   ├── ForeignMembers      a broker's group has members that do not follow holdfast's plan (retriable)
    │   └── GroupActive         a group's offsets cannot be set while it has members
    ├── EventUnreadable         a line is no audit event, or one of a later version
    ├── DeadLetterError         a dead letter was not acknowledged (retriable)
    │   └── DeadLetterRefused   its target will never take it: too large, missing, or closed to this user
    └── HandlerError
        ├── Unretriable         raised *by* handlers: trying again cannot cure this record
        │   ├── NotJson         a handler asks for a record's JSON, and its value is not JSON
        │   ├── RecordUnreadable  what the broker delivered cannot be decoded: dead letter, or the app stops
        │   ├── KeyMissing      a record or a call has no business key, and the setting says that is an error
        │   ├── KeyReused       an idempotent function has run for this key with another payload
        │   ├── HandlerHung     a handler ran past its timeout and its grace: dead letter, or the app stops
        │   └── DeliveriesSpent the broker would drop the record after this delivery: dead letter, without the handler
        ├── RegistryUnavailable a schema registry does not answer, or refuses this client (retriable)
        ├── KeyBusy             another call is running the idempotent function for this key (retriable)
        ├── Fenced              an idempotent function has run, but another call had taken its key over
        ├── AlreadyDone         a record that a handler marks in its own transaction is done
        ├── FormerOwner         another process has taken over the partition of a handler's transaction
        ├── ResultNotStored     an idempotent function has run, but its result cannot be given to later calls
        ├── BatchFailed         raised *by* batch handlers: these records failed, the others are done
        └── HandlerFailed       a record failed for good and there is no dead letter: the app stops

Every message says the cause and the remedy. No code in holdfast decides by an error's text. If a page of the
documentation says more, the traceback ends with its name (`docs`), and so does the output of the command line.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self


#: The folder of the pages, in the repository and in the sdist. Replace it by the site's address once there is one: a
#: test checks that.
_PAGES = "docs/"


class HoldfastError(Exception):
    """The base of all errors that holdfast raises."""

    #: Whether the same call may succeed later without a change.
    retriable: ClassVar[bool] = False
    #: The page that explains the error and its remedy; "" = the message says all.
    page: ClassVar[str] = ""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_credentials(each) if isinstance(each, str) else each for each in args))
        if self.page:
            self.add_note(f"docs: {self.docs}")

    @property
    def docs(self) -> str:
        """The path of that page; "" = there is none."""
        return f"{_PAGES}{self.page}" if self.page else ""


class SettingError(HoldfastError, ValueError):
    """A setting that cannot work: names the field, its value and the remedy. Raised at construction.

    Args:
        field: the setting's name.
        value: its value, shown without credentials.
        remedy: what to use instead.
        origin: the place of the value, if that is not the program: "environment", or a file's name.
    """

    def __init__(self, field: str, value: object, remedy: str, *, origin: str = "") -> None:
        super().__init__(f"{field}={value!r}{f' ({origin})' if origin else ''}: {remedy}")
        shown = without_credentials(value) if isinstance(value, str) else value
        self.field, self.value, self.remedy, self.origin = field, shown, without_credentials(remedy), origin


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'holdfast-mq[{extra}]'")


class ClientUnusable(HoldfastError):
    """A client library is installed but cannot work: another one owns its import name, or it lacks the native part.

    The message says what to install, or what to use instead.
    """


class StateError(HoldfastError):
    """A call that the state of the app does not allow: an app is run twice, a handler is registered while it runs.

    The message says what to do instead. A message about offsets or phases means a defect in holdfast: please report it.
    """


class StoreError(HoldfastError):
    """Something is wrong with the claim store."""

    page = "explanation/store.md"


class StoreUnavailable(StoreError):
    """The store gave no answer. It is unknown whether the call took effect: a claim, a mark or a release may hold."""

    retriable = True


class Unconfirmed(StoreUnavailable):
    """The function has run, and the store has not answered that its key is done.

    holdfast repeats the question in the background until the store answers. A call in the meantime finds the key busy.
    If this process dies before the answer, another call runs the function again.
    """

    page = "how-to/decorator.md"


class StoreLockedOut(StoreUnavailable):
    """The store has let this process in before, and refuses its credentials, its commands or its connection now.

    Nothing runs and nothing is lost until the store's administrator mends that.
    """


class StoreRefused(StoreError):
    """The store answers and refuses: credentials, a version that is too old, an eviction policy that forgets."""


class AccessRefused(StoreRefused):
    """The store refuses this user's credentials or commands, or its certificate cannot be verified."""


class SourceError(HoldfastError):
    """Something is wrong between this process and the broker."""


class SourceUnavailable(SourceError):
    """The broker does not answer now."""

    retriable = True


class NoCoordinator(SourceUnavailable):
    """Brokers answer, and none of them coordinates the group now."""


class SourceFatal(SourceError):
    """The client has ended its life (fenced instance id, fatal protocol error); a rebuilt one may work."""

    retriable = True


class NotAuthorised(SourceError):
    """The broker refuses the credentials or the access to a topic or group."""

    page = "how-to/kafka.md"


class UnknownTopic(SourceError):
    """A topic that is subscribed to by name does not exist."""


class TopicUnfit(SourceError):
    """A retry topic would lose records that wait in it: it is compacted, or keeps them for less than their delay."""

    page = "how-to/retry-topics.md"


class UnknownGroup(SourceError):
    """The broker has no such consumer group: no member, and no offset."""


class StaticIdTaken(SourceError):
    """Another process is the group's member of this static id: two that fight for it would throw each other out."""

    page = "how-to/static-members.md"


class GroupActive(SourceError):
    """The broker lets no client set the offsets of a group that has members."""

    page = "how-to/reset.md"


class SubscriptionDiffers(SourceError):
    """Living members of the group subscribe to other topics or tags. The broker would give messages to members that do
    not read them."""

    page = "how-to/rocketmq.md"


class ClusterDiffers(SourceError):
    """Living members of the group, in the same namespace of the store, are at another cluster of brokers: records done
    in one cluster would count as done in the other."""

    page = "how-to/rocketmq.md"


class ForeignMembers(SourceError):
    """A broker's group has members that do not follow holdfast's plan and read queues that belong to others."""

    page = "how-to/rocketmq.md"
    retriable = True


class EventUnreadable(HoldfastError, ValueError):
    """A line is no audit event, or an event of a later version. A reader skips it, and counts it."""

    page = "operations/audit.md"


class DeadLetterError(HoldfastError):
    """A dead letter was not acknowledged by its broker; the record stays unsettled."""

    page = "how-to/dead-letters.md"
    retriable = True


class DeadLetterRefused(DeadLetterError):
    """The target refuses the letter and always will: it is too large, or the topic is missing or closed to us.

    The record stays unsettled and the app stops: to go on would skip the record, and retries would never end.
    """

    retriable = False


class LetterTooLarge(DeadLetterRefused):
    """The target refuses the letter's size in each form that was tried.

    If a retry topic refuses it, the record goes to the dead letter topic at once. If that topic refuses it too, the
    handler's `letter_too_large` decides.
    """


class HandlerError(HoldfastError):
    """A record could not be handled."""


class Unretriable(HandlerError):
    """Raise it in a handler when a retry cannot cure the record, for example if it cannot be decoded.

    The record goes to the dead letter at once or, without one, stops the app.
    """


class NotJson(Unretriable):
    """A handler asked for a record's value as JSON, but the record has no value, or it is not JSON."""

    page = "how-to/typed-records.md"


class RecordUnreadable(Unretriable):
    """A record that the broker has delivered cannot be decoded. The message names it, and no handler gets it.

    Either the source cannot read the message, or its value does not fit the handler's type (`value=`). In a handler,
    `record.text()` and `record.header("n", int)` raise it for the part that they cannot decode.

    Args:
        message: cause and remedy.
        schema_id: the id of the schema that the value names, if it names one; the dead letter has it in a header.
    """

    page = "how-to/typed-records.md"

    def __init__(self, message: str, *, schema_id: str | None = None) -> None:
        super().__init__(message)
        self.schema_id = schema_id


class RegistryUnavailable(HandlerError):
    """A schema registry does not answer, or refuses this client. The record may be fine: it is tried again
    as the handler's `retry=` says."""

    page = "how-to/typed-records.md"
    retriable = True


class KeyMissing(Unretriable):
    """A record or a call has no business key where the handler asks for one."""

    page = "how-to/handlers.md"


class KeyReused(Unretriable):
    """The function has run for this key with another payload (`fingerprint=`), and is not run again for it."""

    page = "how-to/decorator.md"


class KeyBusy(HandlerError):
    """Another call is running the function for this key: its result is not known yet. Call again later."""

    page = "how-to/decorator.md"
    retriable = True


class Fenced(HandlerError):
    """The function has run, but this process had lost its key and another call has taken it over: drop the result.

    It may have run twice. A sink that compares fences, or work that ends once `current_claim().cancelled`,
    prevents that.
    """

    page = "how-to/decorator.md"


class FormerOwner(HandlerError):
    """Another process has taken the record's partition over, or the database has lost this process' ownership: the
    transaction is undone, and the record is its present owner's."""

    page = "how-to/database.md"


class AlreadyDone(HandlerError):
    """The records that a handler marks in its own transaction are done: an earlier transaction was committed, and the
    process has not heard of it. Let it pass: the handler's call counts as well ended."""

    page = "how-to/database.md"


class ResultNotStored(HandlerError):
    """The function has run and is not run again for this key, but its result cannot be given to later calls."""

    page = "how-to/decorator.md"


class HandlerHung(Unretriable):
    """A handler ran past its timeout and its grace, and was given up.

    The record is not tried again, since that run may still have its effect. This error is the reason in the record's
    dead letter; or `app.run()` drains everything else, commits below the record, leaves, and raises it.
    """

    page = "how-to/slow-handlers.md"


class DeliveriesSpent(Unretriable):
    """The broker has delivered the record as often as the group allows, and drops it unless this delivery ends well.

    No handler gets the record: a process that dies in its handler would lose it. It becomes a dead letter at once.
    """

    page = "how-to/share-groups.md"


class BatchFailed(HandlerError):
    """Raise it in a batch handler to fail some records; all others of the batch count as done.

    Positions that do not fit the handler's list fail all of its records, since it is unclear which are meant.

    Args:
        failures: index of the record in the list that the handler got -> its error.
        items: the length of that list. With it, an error of an inner call, which has another list, is told from the
            handler's own.
    """

    def __init__(self, failures: Mapping[int, Exception], *, items: int | None = None) -> None:
        super().__init__(f"{len(failures)} records of the batch failed")
        given: Iterable[tuple[Any, Exception]] = failures.items()  # numpy's integers are accepted too
        self.failures: dict[int, Exception] = {int(at) if isinstance(at, Integral) else at: each for at, each in given}
        self.items = items
        #: The others are undone too: they were marked in the handler's own transaction, which was not committed.
        self.undone = False

    def fits(self, items: int) -> bool:
        """Whether the positions fit a list of this length."""
        known = bool(self.failures) and self.failures.keys() <= set(range(items))
        return known and self.items in (None, items)

    def fails_all(self, items: int) -> Self:
        """Set the message: all records of a list of this length failed, because the positions do not fit it. Returns
        the error itself."""
        wrong = [f"{at!r:.40}" for at in self.failures if at not in range(items)]
        if self.items not in (None, items):
            why = f"its positions are of another list, of {self.items}"
        elif wrong:
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            why = f"it names {', '.join(wrong[:3])}{more}, and no such positions are there"
        else:
            why = "it names no position"
        said = (
            f"all {items} of a batch count as failed, since BatchFailed does not tell them apart: {why}; give whole "
            f"numbers from 0 to {items - 1}, places in the list that the function was given"
        )
        self.args = (said,)
        return self


class HandlerFailed(HandlerError):
    """A record failed for good and has no dead letter. `app.run()` drains, commits below it, leaves and raises this."""

    page = "how-to/dead-letters.md"

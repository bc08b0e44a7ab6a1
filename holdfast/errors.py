"""The error tree.

    HoldfastError
    ├── SettingError            a setting that cannot work; raised where it is written
    ├── MissingExtraError       an optional dependency is not installed
    ├── ClientUnusable          a client library is installed and cannot work here: the wrong one, or a part is missing
    ├── StateError              what is one-way was asked to go back: an app is run twice, or changed while it runs
    ├── StoreError
    │   ├── StoreUnavailable    no answer; says nothing about what was asked (retriable)
    │   │   ├── Unconfirmed     an idempotent function has run, and the store has not answered that it is done
    │   │   └── StoreLockedOut  the store let this process in, and refuses it now: until somebody mends that (retriable)
    │   └── StoreRefused        the server answers, and the answer is no (password, version, eviction)
    │       └── AccessRefused   its credentials, what its user may do, or the server's certificate
    ├── SourceError
    │   ├── SourceUnavailable   the broker does not answer now (retriable)
    │   │   └── NoCoordinator   brokers answer, and none coordinates the group
    │   ├── SourceFatal         this client is finished; a new one may work (retriable)
    │   ├── NotAuthorised       the broker refuses these credentials
    │   ├── UnknownTopic        a topic that is subscribed to does not exist
    │   ├── TopicUnfit          a topic that waits for its records to be tried again would lose them
    │   ├── UnknownGroup        the broker has no such consumer group
    │   ├── StaticIdTaken       another process is the group's member of this static id
    │   ├── SubscriptionDiffers living members of the group subscribe to something else
    │   ├── ClusterDiffers      living members of the group are at another cluster
    │   ├── ForeignMembers      a broker's group has members that do not go by our plan (retriable)
    │   └── GroupActive         a group's offsets cannot be set while it has members
    ├── EventUnreadable         what was read is no event of the audit, or one of a later version
    ├── DeadLetterError         a dead letter was not acknowledged (retriable)
    │   └── DeadLetterRefused   its target will never take it: too large, missing, closed to us
    └── HandlerError
        ├── Unretriable         raised *by* handlers: trying again cannot cure this record
        │   ├── NotJson         a handler asks for a record's JSON, and its value is none
        │   ├── RecordUnreadable  what the broker delivered cannot be decoded: dead letter, or the app stops
        │   ├── KeyMissing      a record or a call has no business key, and the setting says that is an error
        │   ├── KeyReused       an idempotent function has run for this key with another payload
        │   └── HandlerHung     a handler ran past its timeout and its grace: dead letter, or the app stops
        ├── RegistryUnavailable a schema registry does not answer, or refuses this client (retriable)
        ├── KeyBusy             an idempotent function is being run for this key by another (retriable)
        ├── Fenced              an idempotent function has run, and another had taken its key over meanwhile
        ├── ResultNotStored     an idempotent function has run, and its result cannot be given to later calls
        ├── BatchFailed         raised *by* batch handlers: these records failed, the others are done
        └── HandlerFailed       a record failed for good and there is no dead letter: the app stops

Every message says the cause and the remedy. Nothing in holdfast decides by an error's text. Where a page of the
documentation says more, a traceback ends with its name (`docs`), and so does the command line.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.printable import without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self


#: Where the pages are, in the repository and in the sdist. Once the site has an address, that: a test asks for it.
_PAGES = "docs/"


class HoldfastError(Exception):
    """The base of all errors that holdfast raises."""

    #: Whether asking again may help without anybody changing anything.
    retriable: ClassVar[bool] = False
    #: The page that explains what happened, and what to do; "" = the message says all.
    page: ClassVar[str] = ""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_credentials(each) if isinstance(each, str) else each for each in args))
        if self.page:
            self.add_note(f"docs: {self.docs}")

    @property
    def docs(self) -> str:
        """Where that page is; "" = there is none."""
        return f"{_PAGES}{self.page}" if self.page else ""


class SettingError(HoldfastError, ValueError):
    """A setting that cannot work: names the field, its value and the remedy. Raised at construction.

    Args:
        origin: where the value stands, if that is not the program: "environment", or a file's name.
    """

    def __init__(self, field: str, value: object, remedy: str, *, origin: str = "") -> None:
        super().__init__(f"{field}={value!r}{f' ({origin})' if origin else ''}: {remedy}")
        shown = without_credentials(value) if isinstance(value, str) else value
        self.field, self.value, self.remedy, self.origin = field, shown, without_credentials(remedy), origin


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'holdfast[{extra}]'")


class ClientUnusable(HoldfastError):
    """A client library is there and cannot work: another that owns its import name, or no native part for this machine.

    The message says what to install, or what to use instead.
    """


class StateError(HoldfastError):
    """A move that a one-way state does not have: an app is run twice, a handler registered while it runs.

    The message says what to do instead. One that speaks of offsets or phases is a defect in holdfast: please report it.
    """


class StoreError(HoldfastError):
    """Something is wrong with the claim store."""

    page = "explanation/store.md"


class StoreUnavailable(StoreError):
    """The store gave no answer. That is no verdict: not claimed, not done, not owned, not let go."""

    retriable = True


class Unconfirmed(StoreUnavailable):
    """The function has run, and the store has not answered that its key is done.

    It is asked again in the background until it answers. Called again meanwhile, the key is busy; if this process dies
    before the answer, another call runs the function again.
    """

    page = "how-to/decorator.md"


class StoreLockedOut(StoreUnavailable):
    """The store has let this process in before, and refuses its credentials, its commands or its connection now.

    A slip of whoever administers it: nothing runs and nothing is lost until it is mended.
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
    """The broker does not let anybody set the offsets of a group that has members."""

    page = "how-to/reset.md"


class SubscriptionDiffers(SourceError):
    """Living members of the group subscribe to something else, and what one does not read would be given to it."""

    page = "how-to/rocketmq.md"


class ClusterDiffers(SourceError):
    """Living members of the group, in the same namespace of the store, are at another cluster of brokers: what the one
    has would count for the other."""

    page = "how-to/rocketmq.md"


class ForeignMembers(SourceError):
    """A broker's group has members that do not go by our plan, and reads for them what is given to others."""

    page = "how-to/rocketmq.md"
    retriable = True


class EventUnreadable(HoldfastError, ValueError):
    """A line is no event of the audit, or one that this version does not know: pass it over, and count it."""

    page = "operations/audit.md"


class DeadLetterError(HoldfastError):
    """A dead letter was not acknowledged by its broker; the record stays unsettled."""

    page = "how-to/dead-letters.md"
    retriable = True


class DeadLetterRefused(DeadLetterError):
    """The target refuses the letter and always will: it is too large, or the topic is missing or closed to us.

    The record stays unsettled and the app stops: going on would skip it, trying again would never end.
    """

    retriable = False


class LetterTooLarge(DeadLetterRefused):
    """The target takes no letter of that size, in no form that it was tried in.

    A retry topic is passed over then, and the record goes to the dead letter topic at once. What follows where that one
    refuses it, the handler says: `letter_too_large`.
    """


class HandlerError(HoldfastError):
    """Something about a record's handling."""


class Unretriable(HandlerError):
    """Raise it in a handler when trying again cannot cure the record (it cannot be decoded, say).

    The record goes to the dead letter at once or, without one, stops the app.
    """


class NotJson(Unretriable):
    """A record's value was asked for as JSON, and there is none, or it is something else."""

    page = "how-to/typed-records.md"


class RecordUnreadable(Unretriable):
    """A record that the broker has delivered cannot be decoded; says which. No handler gets it.

    Either the source cannot read the message, or its value is none of the type that the handler asks for (`value=`). A
    handler that asks for a part of a record (`record.text()`, `record.header("n", int)`) gets it raised there.

    Args:
        schema_id: which schema the value names, where it names one; it is in the dead letter's headers.
    """

    page = "how-to/typed-records.md"

    def __init__(self, message: str, *, schema_id: str | None = None) -> None:
        super().__init__(message)
        self.schema_id = schema_id


class RegistryUnavailable(HandlerError):
    """A schema registry does not answer, or refuses this client. That says nothing about the record: it is tried again
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

    It may have been run twice. A sink that compares, or work that ends when `current_claim().cancelled`, prevents that.
    """

    page = "how-to/decorator.md"


class ResultNotStored(HandlerError):
    """The function has run and is not run again for this key, but its result cannot be given to later calls."""

    page = "how-to/decorator.md"


class HandlerHung(Unretriable):
    """A handler ran past its timeout and its grace, and was given up.

    It is not tried again, since that run may still have its effect: this error is the reason in the record's dead
    letter, or what `app.run()` raises after it has drained everything else, committed below the record and left.
    """

    page = "how-to/slow-handlers.md"


class BatchFailed(HandlerError):
    """Raise it in a batch handler to fail some records; all others of the batch count as done.

    Positions that do not fit the handler's list fail all of its records: none would be the one that is meant.

    Args:
        failures: position of the record in the list that the handler got -> what went wrong.
        items: how long that list is. Whoever lets the error of an inner call pass has another list, of another length.
    """

    def __init__(self, failures: Mapping[int, Exception], *, items: int | None = None) -> None:
        super().__init__(f"{len(failures)} records of the batch failed")
        given: Iterable[tuple[Any, Exception]] = failures.items()  # numpy's whole numbers are as good
        self.failures: dict[int, Exception] = {int(at) if isinstance(at, Integral) else at: each for at, each in given}
        self.items = items

    def fits(self, items: int) -> bool:
        """Return whether the positions can be those of a list of that length."""
        known = bool(self.failures) and self.failures.keys() <= set(range(items))
        return known and self.items in (None, items)

    def fails_all(self, items: int) -> Self:
        """Say that it has failed all of a list of that length, where its positions do not fit, and why."""
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

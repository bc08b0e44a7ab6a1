"""Rules of holdfast, each broken on purpose in one place: the simulated world has to catch each of them.

If no world fails with a broken rule, the rule is not needed, or not searched. If a text is not found any more, the code
has moved: break the rule in its new place.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One rule, and how it is broken."""

    name: str
    #: Path under the package.
    file: str
    #: The code of the rule, which stands there once.
    rule: str
    #: The code in its place.
    instead: str
    #: The effect of the broken rule.
    breaks: str
    #: The rule is caught by an error that ends the app. With any other rule such an error means that the change broke
    #: something else.
    ends_the_app: bool = False
    #: Worlds with a database of effects are played: others do not reach the rule.
    with_database: bool = False

    def broken(self, text: str) -> str:
        """Its file's text with the rule broken. Raises ValueError: the rule does not stand there once."""
        if (times := text.count(self.rule)) != 1:
            raise ValueError(f"{self.name}: holdfast/{self.file} has it {times} times, and not once")
        return text.replace(self.rule, self.instead)


RULES = (
    # ---- what is committed and marked
    Broken(
        name="commit-what-was-read",
        file="plugin/engine/partition/ownership.py",
        rule="        return self.ledger.watermark if self.made is None else self.made.up_to(self.ledger.watermark)\n",
        instead="        return self.ledger.next\n",
        breaks="P1: an offset is committed above records that are not handled",
    ),
    Broken(
        name="mark-what-was-read",
        file="plugin/engine/partition/ownership.py",
        rule="self.ledger.watermark_with(done), offsets,",
        instead="self.ledger.next, offsets,",
        breaks="P1: the position in the store counts records as done that are not",
    ),
    Broken(
        name="settle-before-the-mark",
        file="plugin/engine/steps.py",
        rule="                if trip.replies is not None:  # else all of it is asked again\n",
        instead="                parts.settling.settled(trip.settling)\n                trip.settling = []\n"
        "                if trip.replies is not None:\n",
        breaks="progress: what had no answer is never marked",
    ),
    Broken(
        name="mark-before-finish",
        file="plugin/engine/record/settling.py",
        rule="        waiting = self._finishing if entry.held else self._settling",
        instead="        waiting = self._settling",
        breaks="P3: a key is never done, and its next copy runs again",
    ),
    Broken(
        name="fenced-finish-counts",
        file="plugin/engine/steps.py",
        rule="            if verdict is Verdict.FENCED:",
        instead="            if verdict is Verdict.BUSY:",
        breaks="P4: a record is done by who was taken over",
    ),
    Broken(
        name="fenced-mark-counts",
        file="plugin/engine/partition/partitioned.py",
        rule="        for span in ranges if not fenced else ():",
        instead="        for span in ranges:",
        breaks="P4: a zombie's ledger goes on",
    ),
    Broken(
        name="fenced-mark-keeps-the-partition",
        file="plugin/engine/partition/partitioned.py",
        rule="        if owner.phase is Phase.OWNED:\n            self.partitions.retake(owner)",
        instead="        if False:\n            self.partitions.retake(owner)",
        breaks="progress: it works on what another owns",
    ),
    Broken(
        name="committed-before-the-mark",
        file="plugin/engine/partition/ownership.py",
        rule="        return Mark(self.name, self.store_epoch, self.ledger.watermark_with(done), offsets, self.is_gone)\n",
        instead="        watermark = self.ledger.watermark_with(done)\n"
        "        for span in done:\n"
        "            self.ledger.settle_all(span)\n"
        "        return Mark(self.name, self.store_epoch, watermark, offsets, self.is_gone)\n",
        breaks="P2: while the store gives no answer, the group's offsets pass what it does not know as done",
    ),
    Broken(
        name="nothing-is-marked",
        file="plugin/engine/steps.py",
        rule="        marks = [each.owner.mark(each.ranges) for each in self.done]\n",
        instead="        marks = [each.owner.mark(each.ranges)._replace(offsets=(), watermark=0) for each in self.done]\n",
        breaks="P2: what is committed is not known as done to the store",
    ),
    Broken(
        name="batch-of-one-verdict",
        file="plugin/engine/record/claiming.py",
        rule="            if own.count(well) == len(own):",
        instead="            if own.count(well):",
        breaks="P2: a run whose keys are partly done runs whole",
    ),
    # ---- retry topics
    Broken(
        name="what-is-not-due-is-handed-out",
        file="plugin/engine/partition/delays.py",
        rule="            if wait_s > 0:",
        instead="            if wait_s > 1e9:",
        breaks="a record of a retry topic is tried again at once",
    ),
    Broken(
        name="the-end-behind-what-is-not-due",
        file="plugin/engine/partition/delays.py",
        rule="[end for end in batch.ends if self._held(end.partition) is None]",
        instead="batch.ends",
        breaks="P1: what is not due counts as a gap in the log",
    ),
    Broken(
        name="what-is-due-is-not-sought",
        file="plugin/engine/partition/delays.py",
        rule="            hold.owner.seek_needed = True\n",
        instead="            hold.owner.seek_needed = False\n",
        breaks="P1: what came after the first that was not due counts as a gap",
    ),
    # ---- the way out of a rebalance
    Broken(
        name="no-drain",
        file="plugin/engine/partition/hand_over.py",
        rule="        self._loop.work_until(over, self._deadline)\n",
        instead="",
        breaks="P2: handlers that would have ended in time are abandoned",
    ),
    Broken(
        name="drains-without-end",
        file="plugin/engine/partition/hand_over.py",
        rule="        self._loop.work_until(over, self._deadline)\n",
        instead="        self._loop.work_until(over, type(self._deadline)(600.0, self._parts.runtime))\n",
        breaks="P6: a rebalance waits for a handler for longer than it may",
    ),
    Broken(
        name="drains-while-others-starve",
        file="plugin/engine/partition/hand_over.py",
        rule="            return not runs or (starving is not None and starving.too_long)\n",
        instead="            return not runs\n",
        breaks="P5: a partition that stays is not read for as long as another one's handler runs",
    ),
    Broken(
        name="no-fence",
        file="plugin/engine/partition/ownership.py",
        rule="        with self._gate:\n            if self._phase is not _OWNED or not self._live():\n                return False\n            entry.started += 1\n",
        instead="        with self._gate:\n            if self._phase > Phase.FENCED or not self._live():\n                return False\n            entry.started += 1\n",
        breaks="P2: records start on partitions that are going",
    ),
    Broken(
        name="no-hand-back",
        file="plugin/engine/partition/hand_over.py",
        rule="            for entry in [entry for entry in owner.entries.values() if entry.state in UNSTARTED]:",
        instead="            for entry in ():",
        breaks="progress: claims of records that never start are never given back",
    ),
    Broken(
        name="let-go-without-the-unacked",
        file="plugin/engine/partition/hand_over.py",
        rule="LetGo(owner.name, owner.store_epoch, sorted(unacked))",
        instead="LetGo(owner.name, owner.store_epoch, ())",
        breaks="P2: what runs on is started by the next owner too",
    ),
    Broken(
        name="no-let-go",
        file="plugin/engine/partition/hand_over.py",
        rule="                parts.owed.let_go(owner.session_, LetGo(owner.name, owner.store_epoch, sorted(unacked)))\n",
        instead="                pass\n",
        breaks="progress: the next owner waits for a session that lives on",
    ),
    Broken(
        name="no-let-go-of-an-unanswered-acquire",
        file="plugin/engine/partition/hand_over.py",
        rule="                parts.owed.let_go(owner.session_, LetGo(owner.name, 0, ()))\n",
        instead="                pass\n",
        breaks="progress: the store has an owner that does not know it",
    ),
    Broken(
        name="no-commit-on-the-way-out",
        file="plugin/engine/partition/hand_over.py",
        rule="            self._commits.commit_moved(fenced, last=True)\n",
        instead="            pass\n",
        breaks="P1's other half: the group's offsets stay behind what is done when partitions move",
    ),
    Broken(
        name="lost-commits",
        file="plugin/engine/partition/partitions.py",
        rule="                    path.settle()\n                    if drain_s is not None:\n                        path.commit()",
        instead="                    path.settle()\n                    if True:\n                        path.commit()",
        breaks="P4: who has lost a partition moves the group's position",
    ),
    Broken(
        name="owners-stay-after-the-revoke",
        file="plugin/engine/partition/partitions.py",
        rule="                del self.owners[partition]\n            self.cuts.pop",
        instead="                pass\n            self.cuts.pop",
        breaks="an ownership that is over is taken for one that lives",
        ends_the_app=True,
    ),
    Broken(
        name="release-forgotten",
        file="plugin/engine/record/outcomes.py",
        rule="            self._owed.release(owner.session_, Token(owner.name, offset, owner.store_epoch))\n",
        instead="            pass\n",
        breaks="progress: the new owner waits for a handler that failed",
    ),
    # ---- what a member tells, and how it keeps its place
    Broken(
        name="zombies-are-not-told",
        file="plugin/engine/partition/ownership.py",
        rule="        return self._phase is Phase.GONE or not self.session_.live()",
        instead="        return False",
        breaks="P4: a handler runs on after another has taken its record over, and is not told to stop",
    ),
    Broken(
        name="polls-wait-for-handlers",
        file="plugin/engine/loop.py",
        rule="        room = parts.intake.room(stopped=stalled)\n",
        instead="        while parts.workers.outstanding:\n            parts.runtime.sleep(LATE_S)\n        room = parts.intake.room(stopped=stalled)\n",
        breaks="P6: a slow handler costs the membership",
    ),
    Broken(
        name="the-ramp-holds-nothing",
        file="plugin/engine/flow/intake.py",
        rule="            new_at_most = 0 if stopped else new_at_most\n",
        instead="            new_at_most = 0 if stopped else waiting.records\n",
        breaks="P8: a backlog that is taken over comes at once",
    ),
    Broken(
        name="what-went-is-not-reported",
        file="plugin/engine/partition/partitions.py",
        rule="                self.reports.add(path.report(), (), parts.runtime.now())\n",
        instead="",
        breaks="P9: a revocation leaves no report",
    ),
    Broken(
        name="what-came-is-not-reported",
        file="plugin/engine/partition/partitions.py",
        rule="                    self.reports.add(report, owners, began)\n",
        instead="",
        breaks="P9: an assignment leaves no report",
    ),
    Broken(
        name="what-is-abandoned-is-not-counted",
        file="plugin/engine/partition/hand_over.py",
        rule="                self._abandoned += 1\n",
        instead="",
        breaks="P9: a report that says drained of what runs on",
    ),
    Broken(
        name="duplicates-are-counted-twice",
        file="plugin/engine/partition/reports.py",
        rule="        self._duplicates_told = total\n",
        instead="",
        breaks="P9: each duplicate is in all reports that follow",
    ),
    # ---- taking over
    Broken(
        name="nobody-is-waited-for",
        file="plugin/engine/partition/takeover.py",
        rule="        owner.waiting = {offset for offset in acquired.running if offset >= watermark and offset not in known}",
        instead="        owner.waiting = set()",
        breaks="P2: what the former owner still runs is started",
    ),
    Broken(
        name="done-is-not-known",
        file="plugin/engine/partition/takeover.py",
        rule="        owner.own(Ledger(watermark, known))",
        instead="        owner.own(Ledger(watermark))",
        breaks="P2: what is done above the watermark runs again",
    ),
    Broken(
        name="committed-offset-wins",
        file="plugin/engine/partition/group_position.py",
        rule="        at = max(at, committed.offset)",
        instead="        at = committed.offset",
        breaks="P4: a zombie's late commit makes records run twice",
    ),
    Broken(
        name="a-reset-is-ignored",
        file="plugin/engine/partition/takeover.py",
        rule="        if foreign is not None:\n            owner.adopting = foreign",
        instead="        if foreign is not None and foreign > acquired.watermark:\n            owner.adopting = foreign",
        breaks="P1: what somebody wants replayed is not",
    ),
    Broken(
        name="a-reset-is-not-dropped",
        file="plugin/engine/partition/takeover.py",
        rule="        self._drop([owner for owner in owners if owner.phase is Phase.RESETTING])\n",
        instead="        for owner in owners:\n            if owner.phase is Phase.RESETTING:\n                owner.move(Phase.ADOPTING)\n",
        breaks="P1: positions from before the reset skip what is to be replayed",
    ),
    Broken(
        name="acquired-while-a-let-go-is-owed",
        file="plugin/engine/partition/partitions.py",
        rule="                    parts.owed.pay()  # a `let_go` that is owed would end the new ownership\n",
        instead="",
        breaks="P2: an old word to the store ends the new ownership",
    ),
    Broken(
        name="no-seek-after-the-takeover",
        file="plugin/engine/partition/ownership.py",
        rule="        self.owned = self.seek_needed = True\n",
        instead="        self.owned = True\n",
        breaks="P1: records between the watermark and where the client stands are passed over",
    ),
    # ---- what another program has committed
    Broken(
        name="a-foreign-offset-covers-one-more",
        file="plugin/engine/partition/commits.py",
        rule="        self._loop.done_elsewhere(owner.partition, offset)\n",
        instead="        offset += 1\n        self._loop.done_elsewhere(owner.partition, offset)\n",
        breaks="P1: the record at an offset that another program has committed counts as done",
    ),
    Broken(
        name="a-foreign-offset-is-nobodys-word",
        file="plugin/engine/partition/commits.py",
        rule="if isinstance(found, Committed) and not found.ours and found.offset >= owner.ledger.watermark:",
        instead="if False:",
        breaks="a refresh takes the group back behind what another program has committed",
    ),
    Broken(
        name="a-foreign-offset-behind-is-not-told",
        file="plugin/engine/partition/commits.py",
        rule="            self._tell(CommitOverwritten(partition=owner.partition, offset=found.offset, committed=committed))\n",
        instead="",
        breaks="P9: the group's offset is set back, and nobody hears of it",
    ),
    Broken(
        name="expired-offsets-are-a-new-groups",
        file="plugin/engine/partition/takeover.py",
        rule="    return owner.cut is None and owner.acquired is not None and is_new(owner.acquired)\n",
        instead="    return owner.cut is None\n",
        breaks="P1, P2: a group whose offsets the broker has forgotten begins anew",
    ),
    Broken(
        name="owned-at-0-is-never-seen",
        file="plugin/engine/partition/group_position.py",
        rule="    return not (known.begun or",
        instead="    return not (known.watermark or",
        breaks='P1: with "latest" a group that stood at 0 skips what came while its offsets were forgotten',
    ),
    # ---- where a user's loop reads on
    Broken(
        name="a-seek-says-that-all-before-is-done",
        file="plugin/own_loop/driven.py",
        rule="        self.moves.to(partition, offset)\n",
        instead="        self.user.ended_below(partition, offset)\n        self.moves.to(partition, offset)\n",
        breaks="P1: what a loop has and has not committed is committed where it seeks to where it stands",
    ),
    # ---- the start gate and the session
    Broken(
        name="no-start-gate",
        file="plugin/engine/partition/ownership.py",
        rule="        if self._phase is _OWNED and self._live():\n            return True\n        entry.started -= 1\n        return False",
        instead="        return True",
        breaks="P4: who was fenced, or has lost its session, starts records",
    ),
    Broken(
        name="no-session-at-the-start-gate",
        file="plugin/engine/partition/ownership.py",
        rule="        if self._phase is _OWNED and self._live():\n            return True\n        entry.started -= 1",
        instead="        if self._phase is _OWNED:\n            return True\n        entry.started -= 1",
        breaks="P4: after a stall beyond its lease a member starts what others run",
    ),
    Broken(
        name="a-start-is-said-after-the-look",
        file="plugin/engine/partition/ownership.py",
        rule="        entry.started += 1\n        if self._phase is _OWNED and self._live():\n            return True\n        entry.started -= 1\n        return False",
        instead="        if self._phase is _OWNED and self._live():\n            entry.started += 1\n            return True\n        return False",
        breaks="P2: who fences between the two takes a record that starts for one that never will",
    ),
    Broken(
        name="no-start-gate-of-batches",
        file="plugin/engine/partition/ownership.py",
        rule="            if self._phase is not _OWNED or not self._live():\n                return False\n            for entry in entries:",
        instead="            for entry in entries:",
        breaks="P4: the same, of batches",
    ),
    Broken(
        name="the-lease-counts-from-the-answer",
        file="dedup/lease.py",
        rule="        self._sent_at = max(self._sent_at, sent_at)",
        instead="        self._sent_at = max(self._sent_at, self._runtime.now())",
        breaks="P4: a member believes in its session for longer than the store does",
    ),
    Broken(
        name="a-lost-session-goes-on",
        file="plugin/engine/sessions.py",
        rule="        if self.session is not None and not self.session.live():\n            self.lost()\n",
        instead="",
        breaks="progress: nothing starts any more",
    ),
    Broken(
        name="in-hand-is-only-what-runs",
        file="plugin/engine/record/entry.py",
        rule="        if self.state is EntryState.ENDED or self.state is EntryState.STUCK:\n            return self.offsets",
        instead="        if self.state is EntryState.STUCK:\n            return self.offsets",
        breaks="P2: what has ended and is not marked is run by the next owner",
    ),
    Broken(
        name="in-hand-has-no-bound",
        file="plugin/engine/record/settling.py",
        rule="        return min(self.share(kind) - self._of[kind], self.at_most - self.records)",
        instead="        return sys.maxsize",
        breaks="P3: a crash repeats more than was promised",
    ),
    # ---- lanes and keys
    Broken(
        name="the-fence-falls",
        file="plugin/engine/partition/ownership.py",
        rule="return acquired.born_ms + acquired.epoch if",
        instead="return 1_000 - acquired.epoch if",
        breaks="P4: a sink that compares fences refuses the new owner",
    ),
    Broken(
        name="leases-are-not-renewed",
        file="plugin/engine/leased/leased.py",
        rule="            self.source.extend(records)\n",
        instead="            pass\n",
        breaks="P2: a leased message comes to another while its handler runs",
    ),
    Broken(
        name="a-stop-is-not-heard",
        file="plugin/engine/loop.py",
        rule="                while not stopping.begun:\n",
        instead="                while stopping.error is None:\n",
        breaks="progress: a member never leaves",
    ),
    Broken(
        name="followers-are-not-asked-for",
        file="plugin/engine/record/claiming.py",
        rule="                    entry.asked = 0\n                entry.lane.go_on_behind(entry, self._wanted)\n",
        instead="                    entry.asked = 0\n",
        breaks="progress: a lane stands still behind a key that was busy",
    ),
    Broken(
        name="followers-keep-their-keys",
        file="plugin/engine/record/claiming.py",
        rule="            other.state = EntryState.BEHIND_BUSY_KEY\n            self.give_back(other)",
        instead="            other.state = EntryState.BEHIND_BUSY_KEY",
        breaks="progress: two members wait for each other's keys for ever",
    ),
    Broken(
        name="keys-are-not-given-back",
        file="plugin/engine/record/claiming.py",
        rule="                self._owed.unclaim(entry.owner.session_, claim)\n",
        instead="                pass\n",
        breaks="progress: a key stays busy while the session that gave its record up lives",
    ),
    Broken(
        name="waiters-are-forgotten",
        file="plugin/engine/record/claiming.py",
        rule="                    self._holders[claim.key] = waiter.claim\n                    self._wanted.ask(waiter)\n                    break\n",
        instead="                    break\n",
        breaks="progress: who waits in this process for a key is never asked for",
    ),
    Broken(
        name="no-answer-is-a-no",
        file="plugin/engine/record/claiming.py",
        rule="        except BaseException:\n            self._wanted.ask_first(asked)\n            raise",
        instead="        except BaseException:\n            for entry in asked:\n                entry.held = False\n            self._wanted.ask_first(asked)\n            raise",
        breaks="progress: a key that was granted unheard is never given back",
    ),
    Broken(
        name="a-retry-wakes-nobody",
        file="plugin/engine/record/outcomes.py",
        rule="            entry.state = EntryState.READY\n            self.retried += 1\n            self._lanes.wake(entry.lane)",
        instead="            entry.state = EntryState.READY\n            self.retried += 1",
        breaks="progress: a record that failed is not tried again",
    ),
    Broken(
        name="a-skip-wakes-nobody",
        file="plugin/engine/record/claiming.py",
        rule="        self._lanes.wake(entry.lane)  # it ends without coming back from a worker: who waits behind it may start now\n",
        instead="",
        breaks="progress: a lane stands still behind a duplicate",
    ),
    Broken(
        name="lanes-overtake",
        file="plugin/engine/record/lanes.py",
        rule="            if entry.state is not EntryState.READY or room <= 0 or (taken and entry.handler is not taken[0].handler):\n                break\n",
        instead="            if entry.state is not EntryState.READY:\n                continue\n            if room <= 0 or (taken and entry.handler is not taken[0].handler):\n                break\n",
        breaks="order: a record starts before one of its lane that waits",
    ),
    Broken(
        name="put-back-at-the-end",
        file="plugin/engine/record/lanes.py",
        rule="        lane.entries.insert(place, entry)",
        instead="        lane.entries.append(entry)",
        breaks="order: a record that must run again runs after those behind it",
    ),
    Broken(
        name="failed-and-on",
        file="plugin/engine/record/attempts.py",
        rule="        if ended.outcome is not Outcome.OK:\n            stopped.add(entry.lane)\n        call.current = None\n        report(ended)\n\n\ndef _verdict(",
        instead="        call.current = None\n        report(ended)\n\n\ndef _verdict(",
        breaks="order: what follows a record that failed runs before its retry",
    ),
    Broken(
        name="failed-and-on-in-a-task",
        file="plugin/engine/record/attempts.py",
        rule="        if ended.outcome is not Outcome.OK:\n            stopped.add(entry.lane)\n        call.current = None\n        report(ended)\n    if call.struck",
        instead="        call.current = None\n        report(ended)\n    if call.struck",
        breaks="order: what follows a coroutine that failed runs before its retry",
    ),
    Broken(
        name="another-one-of-the-batch-failed",
        file="plugin/engine/record/attempts.py",
        rule="        return {given[at]: _as_exception(failure) for at, failure in error.failures.items()}\n",
        instead="        return {given[at - 1]: _as_exception(failure) for at, failure in error.failures.items()}\n",
        breaks="P1: of a batch another record than the one that failed is tried again",
    ),
    Broken(
        name="all-of-the-batch-failed",
        file="plugin/engine/record/attempts.py",
        rule="    if isinstance(error, BatchFailed) and error.fits(len(given)):\n",
        instead="    if False:\n",
        breaks="P2: what a batch has handled well is tried again with what failed",
    ),
    Broken(
        name="the-first-kind-goes-first",
        file="plugin/engine/record/dispatch.py",
        rule="        kinds.rotate(-self._turns)\n",
        instead="",
        breaks="no starvation: in the polling thread one kind of handler has every turn",
    ),
    Broken(
        name="kinds-share-one-room",
        file="plugin/engine/record/settling.py",
        rule="        return min(self.share(kind) - self._of[kind], self.at_most - self.records)",
        instead="        return self.at_most - self.records",
        breaks="no starvation: a kind of handler takes all that may be in hand",
    ),
    Broken(
        name="one-attempt-too-few",
        file="plugin/retrying/retry.py",
        rule="        state.attempt_number = attempt\n",
        instead="        state.attempt_number = attempt + 1\n",
        breaks="a record is sent away that was to be tried again",
    ),
    Broken(
        name="what-nobody-can-read-is-handled",
        file="plugin/engine/record/admission.py",
        rule="groupby(records, key=self._fault):",
        instead="groupby(records, key=lambda _: None):",
        breaks="a handler gets a record that its client could not read",
    ),
    Broken(
        name="a-letter-is-not-waited-for",
        file="plugin/engine/record/attempts.py",
        rule="        report(Ended(entry, Outcome.LETTER_FAILED, failure))",
        instead="        report(Ended(entry, Outcome.LETTER_SENT))",
        breaks="P1: a record whose dead letter was refused is gone",
    ),
    Broken(
        name="a-letter-goes-short-unasked",
        file="plugin/engine/record/outcomes.py",
        rule='(letter.without_value or entry.handler.letter_too_large == "stop"):',
        instead="letter.without_value:",
        breaks="P1: the value of a record is gone whose handler was to stop where its letter is too large",
    ),
    # ---- fair turns
    Broken(
        name="turns-by-arrival",
        file="plugin/engine/record/turns.py",
        rule="        row = share.rows[partition]\n",
        instead="        row = share.rows[next(iter(share.rows), partition)]\n",
        breaks="P5: what comes into the process waits behind all that another partition has there",
    ),
    Broken(
        name="a-share-is-never-given-back",
        file="plugin/engine/flow/intake.py",
        rule="        owner.in_process -= entry.count\n",
        instead="",
        breaks="P5: a partition that has had its share gets no more",
    ),
    Broken(
        name="a-paused-partition-is-forgotten",
        file="plugin/engine/flow/intake.py",
        rule="            wanted.update(each for each in assigned if each in self.held)\n",
        instead="            wanted.update(each for each in assigned if each in self.held)\n            wanted.update(self._paused if self.waiting.records else ())\n",
        breaks="P5: a partition that was paused for its backlog comes again when nothing waits of any other",
    ),
    # ---- how far is read
    Broken(
        name="read-however-far",
        file="plugin/engine/partition/held_back.py",
        rule="            if ahead < (",
        instead="            if True or ahead < (",
        breaks="what is done above a record that does not end has no bound",
    ),
    Broken(
        name="what-waits-goes-on-however-far",
        file="plugin/engine/flow/intake.py",
        rule="waiting.take(self._shares(), new_at_most, self.held)",
        instead="waiting.take(self._shares(), new_at_most)",
        breaks="the same, of what waited while the ramp limited the intake",
    ),
    # ---- holes in the log
    Broken(
        name="a-hole-is-the-logs",
        file="plugin/engine/partition/holes.py",
        rule="        if self._source.gaps_are_the_logs or now < owner.believed_until:",
        instead="        if True:",
        breaks="P1: a record that the client has gone past is taken for one that the log does not have",
    ),
    Broken(
        name="a-hole-above-the-start-is-retentions",
        file="plugin/engine/partition/holes.py",
        rule="self._expire(owner, min(start, until))",
        instead="self._expire(owner, until)",
        breaks="P1: a record that the client has gone past counts as deleted, where retention has deleted others",
    ),
    Broken(
        name="a-hole-at-the-end-is-the-logs",
        file="plugin/engine/partition/holes.py",
        rule="            self.pass_over(owner, end, at_end=True)\n",
        instead="            owner.ledger.reached(end)\n",
        breaks="P1: the same, of the last record",
    ),
    Broken(
        name="a-larger-hole-confirms-the-first",
        file="plugin/engine/partition/holes.py",
        rule="            if _was_sent_back(before, look) or",
        instead="            if True or",
        breaks="P1: after a seek without effect a record that the client has gone past counts as a hole",
    ),
    Broken(
        name="believed-whatever-moves-the-client",
        file="plugin/engine/partition/holes.py",
        rule="            owner.believed_until = 0.0\n",
        instead="",
        breaks="P1: after a rebalance a record is left out of a log that has holes",
    ),
    Broken(
        name="a-look-outlasts-a-move",
        file="plugin/engine/partition/holes.py",
        rule="            if owner.second_look is not None:\n                owner.seek_needed = True\n",
        instead="",
        breaks="P1: the client leaves the record out once more, and that counts as the second look",
    ),
    # ---- the store
    Broken(
        name="store-anyone-may-acquire",
        file="dedup/memory_session.py",
        rule="            if p.owner not in (None, self.id) and self._state.alive(p.owner):\n                return Wait.WAIT\n",
        instead="",
        breaks="P4: two owners at a time",
    ),
    Broken(
        name="store-anyone-may-mark",
        file="dedup/memory_session.py",
        rule="            if owns or lost:\n",
        instead="            if True:\n",
        breaks="P4: a zombie marks",
    ),
    Broken(
        name="store-late-requests-count",
        file="dedup/memory_state.py",
        rule="        if generation < session.generation:\n            return False\n",
        instead="",
        breaks="P7: a request that comes late undoes what was said after it",
    ),
    Broken(
        name="store-anyone-may-finish",
        file="dedup/memory_session.py",
        rule="            if held != (self.id, claim.token) and not lost:\n                return Verdict.FENCED\n",
        instead="",
        breaks="P4: a key is done by who was taken over",
    ),
    Broken(
        name="store-let-go-forgets-others",
        file="dedup/memory_session.py",
        rule="                p.owner = None\n",
        instead="                p.owner, p.running = None, {}\n",
        breaks="P2: what two owners ago runs on is started",
    ),
    Broken(
        name="store-unacked-are-free-at-once",
        file="dedup/memory_session.py",
        rule="                if offset not in done and offset in p.running and self._state.alive(p.running[offset][0])",
        instead="                if False",
        breaks="P2: what the former owner runs is given to the next one",
    ),
    # ---- effects in the store's database
    Broken(
        name="the-mark-in-a-transaction-of-its-own",
        file="adapters/sql/transactions.py",
        rule="        opened: Opened = yield lambda: way.open(statements.marking(name, held.owner, change))\n",
        instead="        marking = statements.marking(name, held.owner, change)\n"
        "        [changed] = database.change_all([marking])\n"
        "        nothing = 'UPDATE holdfast_position SET free = free WHERE name = ? AND stripe = -1'\n"
        "        opened = way.open(marking._replace(text=nothing, parameters=(name,)))\n"
        "        opened.changed = changed\n",
        breaks="what is undone, or whose process dies, counts as done",
        with_database=True,
    ),
    Broken(
        name="any-owner-may-write",
        file="adapters/sql/rows.py",
        rule='AND owner = ? AND version = ?"',
        instead="AND ? <> '' AND version = ?\"",
        breaks="P4: a zombie's effect comes beside the new owner's",
        with_database=True,
    ),
    Broken(
        name="any-version-will-do",
        file="adapters/sql/rows.py",
        rule='AND owner = ? AND version = ?"',
        instead='AND owner = ? AND ? >= 0"',
        breaks="what the database has lost is marked as done again, without its effect",
        with_database=True,
    ),
    Broken(
        name="the-other-rows-are-not-compared",
        file="adapters/sql/rows.py",
        rule="        if not change.others:\n",
        instead="        if True:\n",
        breaks="a watermark covers what another row has lost",
        with_database=True,
    ),
    Broken(
        name="a-takeover-does-not-wait",
        file="adapters/sql/rows.py",
        rule="        self._lock_first(tx, names, self._of.for_update)\n"
        "        found = self.read(tx, names, self._of.for_update)\n",
        instead="        found = self.read(tx, names)\n",
        breaks="what a transaction marks while it is taken over is not seen",
        with_database=True,
    ),
    Broken(
        name="the-brokers-commit-wins",
        file="adapters/sql/store.py",
        rule="    truth = True\n",
        instead="    truth = False\n",
        breaks="effects that the database has lost are not made again",
        with_database=True,
    ),
    Broken(
        name="unknown-counts-as-done",
        file="adapters/sql/transactions.py",
        rule="            yield from self._finding_out(error)\n",
        instead="            self._over(cut=True, done=True)\n",
        breaks="a COMMIT that was lost on its way counts",
        with_database=True,
    ),
    Broken(
        name="unknown-counts-as-failed",
        file="adapters/sql/transactions.py",
        rule="            yield from self._finding_out(error)\n",
        instead="            self._over(cut=True)\n            raise\n",
        breaks="an effect whose COMMIT had no answer is made again",
        with_database=True,
    ),
    Broken(
        name="unknown-is-not-waited-for",
        file="adapters/sql/rows.py",
        rule="{self._stripes.format(_places(stripes))}{self._of.for_update}",
        instead="{self._stripes.format(_places(stripes))}",
        breaks="a COMMIT that is still under way counts as lost",
        with_database=True,
    ),
    Broken(
        name="a-watermark-of-what-was-read",
        file="adapters/sql/held.py",
        rule="        return self._change(stripe, runs(offsets), 0)\n",
        instead="        return self._change(stripe, runs(offsets), max(offsets) + 1)\n",
        breaks="P1: what lies below counts as done",
        with_database=True,
    ),
    Broken(
        name="the-letter-before-the-kill",
        file="plugin/engine/record/hung_handlers.py",
        rule="        return store is None or store.abandon(owner.name, owner.store_epoch, _offsets(entries))\n",
        instead="        return True\n",
        breaks="a record that was sent away has its effect too",
        with_database=True,
    ),
    Broken(
        name="a-further-row-without-the-first-ones-lock",
        file="adapters/sql/rows.py",
        rule="        text = self._add.format(self._of.for_update)\n",
        instead='        text = self._add.format("")\n',
        breaks="a row slips in behind a takeover, which does not fence it",
        with_database=True,
    ),
)

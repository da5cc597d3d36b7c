package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Cause is the reason to settle a task. Make one with Returned, Crashed, Expired, KeyDied, StartedBefore, Interrupted,
// Stopped, Requested or Undone.
type Cause struct {
	event   Event  // "" if the error of the handler decides
	err     error  // contained, if it comes from a handler
	counts  [3]int // failures, crashes and deferrals before a retry, for EventUndo
	started bool   // the handler may have been called, for EventInterrupt
}

var (
	errCrashed = errors.New("the worker of the task died")
	errExpired = errors.New("the deadline passed before the attempt began")
	errOnce    = errors.New("its type runs at most once")
	errKeyDied = errors.New("an earlier ordered task of the key is dead, and after_death is dead; retry that task first")
)

// Returned is the cause "the handler returned err". A nil err means success. Returned reads err, so that no later use
// of the cause calls a method of err, except PolicyFor. If such a method panics or calls runtime.Goexit, the cause is a
// failure with a stack, unless err requests another outcome.
func Returned(err error) Cause { return Cause{err: contain(err)} }

// Err returns the error of the cause, or nil. The error of a handler has the form in which Returned has read it. It has
// the text of the original, and the functions of this package find the same data in it as in the original.
func (c Cause) Err() error { return c.err }

// Crashed is the cause "the worker died before it wrote a result". If the task is Buffered, no crash is counted.
func Crashed(worker WorkerID) Cause {
	return Cause{event: EventCrash, err: fmt.Errorf("%w (worker %s)", errCrashed, worker)}
}

// Expired is the cause "the deadline passed before the attempt began"; see Policy.Expired. The task is given up, and
// nothing is counted.
func Expired() Cause { return Cause{event: EventGiveUp, err: errExpired} }

// KeyDied is the cause "an earlier ordered task of the key is dead"; see Task.Doomed. The task is given up, and nothing
// is counted.
func KeyDied() Cause { return Cause{event: EventGiveUp, err: errKeyDied} }

// StartedBefore is the cause "an earlier attempt had started, and the type of the task runs at most once"; see
// Policy.StartedBefore. The task is given up, and nothing is counted.
func StartedBefore() Cause {
	return Cause{event: EventGiveUp, err: fmt.Errorf("an earlier attempt had started, and %w", errOnce)}
}

// Interrupted is the cause "the worker handed the task back, and its handler was not called". The record of the attempt
// has why, which may be nil.
func Interrupted(why error) Cause { return Cause{event: EventInterrupt, err: why} }

// Stopped is the cause "the worker handed the task back, and its handler may have started". With Policy.AtMostOnce, the
// task is given up. Otherwise Stopped has the same effect as Interrupted.
func Stopped(why error) Cause { return Cause{event: EventInterrupt, err: why, started: true} }

// Requested is the cause "an operator requests event", which is EventRequeue, EventCancel, EventArchive or EventRestore.
// For any other event, Settle returns an ErrConflict.
func Requested(event Event) Cause {
	switch event {
	case EventRequeue, EventCancel, EventArchive, EventRestore:
		return Cause{event: event}
	}
	return Cause{event: Event(fmt.Sprintf("%.100q", event))}
}

// Undone is the cause "an operator undoes the retry of a dead task". The arguments are the counters before the retry.
func Undone(failures, crashes, deferrals int) Cause {
	return Cause{event: EventUndo, counts: [3]int{failures, crashes, deferrals}}
}

// Transition is a change of one task. The store applies it only if the task is in one of the states From, at attempt
// Attempt, and owned by Worker. Otherwise the store changes nothing and reports the refusal.
type Transition struct {
	Task    TaskID
	Event   Event
	From    []State
	Attempt int      // the attempt that Settle saw
	Worker  WorkerID // the owner that Settle saw; 0 if the task was not running
	// Subqueue and Type are those of the task. A store that reads them from the task ignores these fields.
	Subqueue, Type string
	// OrderedKey is the key of an ordered task, and "" for all other tasks.
	OrderedKey string
	AfterDeath AfterDeath // never empty for an ordered task that is given up; "" for all other transitions

	To          State
	NextAttempt int
	Failures    int
	Crashes     int
	Deferrals   int
	MaxAttempts int
	// Wait is the time until the task is due, if To is Ready. It begins when the store applies the transition, because
	// only the clock of the store is used.
	Wait time.Duration
	// Report describes the failed attempt. It is the zero value if the attempt did not fail.
	Report Report
	// Recorded requests a record of the attempt, with the report.
	Recorded bool
	// Fingerprint identifies the cause of a death. It is "" for all events except EventGiveUp.
	Fingerprint string
	// Effects are stored if and only if the transition is accepted. Settle sets none, and only a success may have some.
	Effects *Effects
}

// Settle returns the transition of t for a cause. No other code decides the outcome of an attempt: the consumer calls
// Settle with the error of the handler, the janitor with Crashed, and operators with Requested.
//
// Settle uses now only to compare it with t.CreatedAt, for the deadline of the policy. It returns ErrConflict and an
// empty Transition if the cause does not fit t.State.
//
// Settle gives the task up if one of these limits is reached:
//
//   - the number of failures reaches MaxAttempts,
//   - the number of crashes reaches MaxCrashes,
//   - the number of deferrals exceeds MaxDeferrals,
//   - the next attempt would begin after the deadline, or this one would have (Expired),
//   - the policy is AtMostOnce, and this attempt may have started, or an earlier one has (StartedBefore).
func Settle(t Task, cause Cause, now time.Time, policy Policy) (Transition, error) {
	move := Transition{
		Task: t.ID, Attempt: t.Attempt, Worker: t.Worker, Subqueue: t.Subqueue(), Type: t.Type, NextAttempt: t.Attempt,
		Failures: t.Failures, Crashes: t.Crashes, Deferrals: t.Deferrals, MaxAttempts: t.MaxAttempts,
	}
	move.Event = cause.event
	var requested *outcome
	if move.Event == "" {
		move.Event, requested = eventOf(cause.err)
	}
	if cause.err != nil {
		move.Report = ReportOf(cause.err)
	}
	limit := t.MaxAttempts
	if limit < 1 {
		limit = policy.MaxAttempts
	}

	switch move.Event {
	case EventRetry:
		move.Failures++
		move.Wait = policy.Delay(move.Failures, dice(t.ID, t.Attempt))
		if requested != nil {
			move.Wait = min(requested.after, maxDelay)
		}
		if move.Failures >= limit {
			move.Event = EventGiveUp
		}
	case EventDefer:
		move.Wait = min(requested.after, maxDelay)
		if requested.free {
			break
		}
		move.Deferrals++
		if move.Deferrals > policy.MaxDeferrals {
			move.Event = EventGiveUp
		}
	case EventCrash:
		if t.Buffered && !policy.AtMostOnce { // the handler may not have started
			move.Event = EventInterrupt
			break
		}
		move.Crashes++
		move.Wait = crashWait(move.Crashes, dice(t.ID, t.Attempt))
		if move.Crashes >= policy.MaxCrashes && !policy.AtMostOnce { // otherwise giveUpOnce says why the task is dead
			move.Event = EventGiveUp
		}
	case EventGiveUp:
		if cause.event == "" { // otherwise the attempt has not begun
			move.Failures++
		}
	case EventRequeue: // the operator has probably repaired the cause, so all counters restart
		move.Failures, move.Crashes, move.Deferrals = 0, 0, 0
	case EventUndo:
		move.Failures, move.Crashes, move.Deferrals = cause.counts[0], cause.counts[1], cause.counts[2]
	}
	if policy.AtMostOnce && (move.isRetry() || move.Event == EventInterrupt && cause.started) {
		move.giveUpOnce()
	}
	if move.isRetry() && policy.Deadline > 0 && now.Add(move.Wait).After(t.CreatedAt.Add(policy.Deadline)) {
		move.Event = EventGiveUp
		move.Report.Error = clip(fmt.Sprintf("the deadline of %s has passed; last error: %s", policy.Deadline, move.Report.Error), MaxErrorLength)
	}

	if !Allowed(move.Event, t.State) {
		return Transition{}, notAllowed(t, move.Event)
	}
	move.From, move.To = moves[move.Event].From, moves[move.Event].To
	if move.To == Ready {
		move.NextAttempt++
	} else {
		move.Wait = 0
	}
	if move.Event == EventGiveUp {
		move.Fingerprint = Fingerprint(t.Type, move.Report)
	}
	move.setOrder(t, policy)
	move.Recorded = isRecorded(t, move, policy.KeepAttempts)
	return move, nil
}

// giveUpOnce gives the task up because its type runs at most once. The report keeps the class of an error that the
// handler returned, so that groups of deaths distinguish these errors.
func (t *Transition) giveUpOnce() {
	text := t.Report.Error
	switch t.Event {
	case EventRetry, EventDefer:
		text = fmt.Sprintf("no other attempt starts, because %s: %s", errOnce, text)
	case EventCrash:
		t.Report.Class, text = onceClass, fmt.Sprintf("the attempt may have started, and %s: %s", errOnce, text)
	default:
		t.Report.Class, text = onceClass, fmt.Sprintf("the attempt had started, and %s; it was interrupted: %s", errOnce, text)
	}
	t.Report.Error = clip(text, MaxErrorLength)
	t.Event = EventGiveUp
}

// setOrder sets the effect of the transition on the key of an ordered task.
func (t *Transition) setOrder(task Task, policy Policy) {
	if !task.Ordered {
		return
	}
	if t.OrderedKey = task.Key; t.Event == EventGiveUp {
		t.AfterDeath = cmp.Or(policy.AfterDeath, AfterDeathBlock)
	}
}

// isRecorded reports whether the store keeps a record of the attempt of t that ends with move. Two transitions are not
// the result of an attempt, and have no report: a hand-back of a task that did not start, and a request of an operator.
func isRecorded(t Task, move Transition, keep Keep) bool {
	switch {
	case move.Event == EventComplete:
		failedBefore := t.LastError != "" || t.Failures+t.Crashes+t.Deferrals > 0
		return keep == KeepAll || keep != KeepNone && failedBefore
	case move.Event == EventGiveUp:
		return true
	}
	return keep != KeepNone && !move.Report.isZero()
}

// operations has the verb and the participle for each event that an operator can request.
var operations = map[Event][2]string{
	EventRequeue: {"retry", "retried"}, EventCancel: {"cancel", "cancelled"},
	EventArchive: {"archive", "archived"}, EventRestore: {"restore", "restored"},
	EventUndo: {"undo the retry of", "put back"},
}

// notAllowed returns the ErrConflict for an event that the state of the task does not allow.
func notAllowed(t Task, event Event) error {
	words, ok := operations[event]
	if !ok {
		return fmt.Errorf("%w: cannot %s task %s: its state is %s", ErrConflict, event, t.ID, t.State)
	}
	var from []string
	for _, state := range moves[event].From {
		from = append(from, string(state))
	}
	last := len(from) - 1
	allowed := from[last]
	if last > 0 {
		allowed = strings.Join(from[:last], ", ") + " or " + allowed
	}
	return fmt.Errorf("%w: cannot %s task %s: its state is %s; only %s tasks can be %s",
		ErrConflict, words[0], t.ID, t.State, allowed, words[1])
}

// crashWait returns the delay after a crash. The first crash has no delay. Later delays separate tasks that crashed
// together, because one of them may crash every worker that runs it.
func crashWait(crashes int, dice float64) time.Duration {
	if crashes < 2 {
		return 0
	}
	grown := time.Second << min(crashes-1, 6)
	return time.Duration(float64(min(grown, time.Minute)) * (0.5 + dice))
}

// MovesKey reports whether the transition may let another task of the key start, or makes the task wait for its turn
// again.
func (t Transition) MovesKey() bool {
	return t.OrderedKey != "" && (t.To != Ready || t.Event == EventRequeue)
}

// isRetry reports whether the outcome of the last attempt causes another attempt. The deadline applies only to such
// events, and not to a hand-back.
func (t Transition) isRetry() bool {
	return t.Event == EventRetry || t.Event == EventDefer || t.Event == EventCrash
}

// eventOf returns the event that the error of a handler requests. If several errors request one, the outermost decides.
func eventOf(err error) (Event, *outcome) {
	if err == nil {
		return EventComplete, nil
	}
	if requested, ok := errors.AsType[*outcome](err); ok {
		if requested.event == EventGiveUp || requested.event == EventCancel {
			return requested.event, nil
		}
		return requested.event, requested
	}
	return EventRetry, nil
}

// dice returns a number in [0, 1) that depends only on the task and the attempt. So Settle always returns the same
// transition for the same attempt, but the delays differ between tasks. The mixing function is that of splitmix64
// (Steele, Lea, Flood, 2014).
func dice(id TaskID, attempt int) float64 {
	x := uint64(id)*0x9e3779b97f4a7c15 + uint64(attempt)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

// clip returns text in a form that every store accepts: at most limit bytes of valid UTF-8 without NUL.
func clip(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

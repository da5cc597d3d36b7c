package holdfast

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Cause is why a task is judged. Make one with Returned, Crashed, Interrupted
// or Asked.
type Cause struct {
	event Event // "" when the handler's error decides
	err   error
}

var errCrashed = errors.New("the worker that ran the task is gone")

// Returned is the cause "the handler returned err"; nil means success.
func Returned(err error) Cause { return Cause{err: err} }

// Crashed is the cause "the worker's lease ran out before it wrote a result". A task that is Buffered is not charged.
func Crashed(run RunID) Cause {
	return Cause{EventCrash, fmt.Errorf("%w (run %s)", errCrashed, run)}
}

// Interrupted is the cause "the worker handed the task back unfinished"; why
// is kept for the person who reads the attempts and may be nil.
func Interrupted(why error) Cause { return Cause{EventInterrupt, why} }

// Asked is the cause "an operator asked for event": EventRequeue, EventCancel,
// EventArchive or EventRestore. Nobody can ask for another one: Settle answers those
// with an ErrConflict.
func Asked(event Event) Cause {
	switch event {
	case EventRequeue, EventCancel, EventArchive, EventRestore:
		return Cause{event: event}
	}
	return Cause{event: Event(fmt.Sprintf("be asked to %.100q", event))}
}

// Transition is one judged move of one task. The store applies it only while the
// task still is in one of the states From, at attempt Attempt and owned by Run;
// otherwise it changes nothing and says so.
type Transition struct {
	Task    TaskID
	Event   Event
	From    []State
	Attempt int   // the attempt that was judged
	Run     RunID // the owner at the time of judgement; 0 for a task nobody runs

	To          State
	NextAttempt int
	Failures    int
	Crashes     int
	Deferrals   int
	MaxAttempts int
	// Wait is how long after the store applies the move the task becomes due, if
	// To is Ready. It is relative because only the store's clock counts.
	Wait time.Duration
	// Report describes the failed attempt; its zero value means there is nothing
	// to keep.
	Report Report
}

// Settle judges what cause means for t and returns the move to apply. It is the
// only judge: the consumer calls it with the handler's error, the janitor with
// Crashed, and operators through Asked.
//
// now is compared only with t.CreatedAt for the policy's deadline. The error is
// an ErrConflict when the cause does not fit t.State, and then the Transition is
// empty. A task is given up when a counted failure is its MaxAttempts-th, a crash
// its MaxCrashes-th, a deferral exceeds MaxDeferrals, or when the next attempt
// would begin after the deadline.
func Settle(t Task, cause Cause, now time.Time, policy Policy) (Transition, error) {
	move := Transition{
		Task: t.ID, Attempt: t.Attempt, Run: t.Run, NextAttempt: t.Attempt,
		Failures: t.Failures, Crashes: t.Crashes, Deferrals: t.Deferrals, MaxAttempts: t.MaxAttempts,
	}
	move.Event = cause.event
	var wish *outcome
	if move.Event == "" {
		move.Event, wish = eventOf(cause.err)
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
		if wish != nil {
			move.Wait = min(wish.after, maxDelay)
		}
		if move.Failures >= limit {
			move.Event = EventGiveUp
		}
	case EventDefer:
		move.Wait = min(wish.after, maxDelay)
		if wish.free {
			break
		}
		move.Deferrals++
		if move.Deferrals > policy.MaxDeferrals {
			move.Event = EventGiveUp
		}
	case EventCrash:
		if t.Buffered { // perhaps it never started
			move.Event = EventInterrupt
			break
		}
		move.Crashes++
		move.Wait = crashWait(move.Crashes, dice(t.ID, t.Attempt))
		if move.Crashes >= policy.MaxCrashes {
			move.Event = EventGiveUp
		}
	case EventGiveUp:
		move.Failures++
	case EventRequeue: // a fresh budget: whoever sends it again has mended something
		move.Failures, move.Crashes, move.Deferrals = 0, 0, 0
	}
	if move.again() && policy.Deadline > 0 && now.Add(move.Wait).After(t.CreatedAt.Add(policy.Deadline)) {
		move.Event = EventGiveUp
		move.Report.Error = clip(fmt.Sprintf("the deadline of %s is over; last error: %s", policy.Deadline, move.Report.Error), MaxErrorLength)
	}

	if !Allowed(move.Event, t.State) {
		return Transition{}, fmt.Errorf("%w: task %s is %s and cannot %s", ErrConflict, t.ID, t.State, move.Event)
	}
	move.From, move.To = moves[move.Event].From, moves[move.Event].To
	if move.To == Ready {
		move.NextAttempt++
	} else {
		move.Wait = 0
	}
	return move, nil
}

// crashWait separates the tasks that crashed together: one of them may be what kills the workers, and
// would take the same neighbours along each time. The first crash costs no time.
func crashWait(crashes int, dice float64) time.Duration {
	if crashes < 2 {
		return 0
	}
	grown := time.Second << min(crashes-1, 6)
	return time.Duration(float64(min(grown, time.Minute)) * (0.5 + dice))
}

// again reports whether the event would start another attempt because of what
// the last one did; a hand-back is no reason to look at the deadline.
func (t Transition) again() bool {
	return t.Event == EventRetry || t.Event == EventDefer || t.Event == EventCrash
}

// eventOf reads what a handler's error asks for. The outermost wish counts.
func eventOf(err error) (Event, *outcome) {
	if err == nil {
		return EventComplete, nil
	}
	if wish, ok := errors.AsType[*outcome](err); ok {
		if wish.event == EventGiveUp || wish.event == EventCancel {
			return wish.event, nil
		}
		return wish.event, wish
	}
	return EventRetry, nil
}

// dice is a number in [0, 1) that is the same whoever computes it, so that a
// judgement can be repeated and explained, and yet differs between tasks. The
// mixing is that of splitmix64 (Steele, Lea, Flood, 2014).
func dice(id TaskID, attempt int) float64 {
	x := uint64(id)*0x9e3779b97f4a7c15 + uint64(attempt)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

// clip makes text fit for any store: at most limit bytes of valid UTF-8 without
// NUL.
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

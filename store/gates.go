package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// Gates keeps ready tasks from starting. A gate is closed or open. A closed gate concerns the tasks that its [Subject]
// selects:
//
//   - Work.Claim claims none of them. It answers Blocked, and Tickets.Block then blocks the task at the gate.
//   - A blocked task is ready and has no ticket. It costs nothing while it waits.
//   - When the gate has opened, ReleaseBlocked makes its tasks due in small steps.
//
// A gate does not stop handlers that already run.
type Gates interface {
	// Pause closes a gate for a subject. If the subject is already paused, Pause changes only the fields of that pause
	// that c sets. So two callers that change different fields at the same time both succeed. Pause adds an audit
	// entry. It returns ErrInvalid if the change is not valid, and the error of c.Check.
	//
	// When Pause returns, no claim takes a task of the subject, in any process, until the gate is open again. If Pause
	// returns an error because ctx has ended, the pause may be stored, and claims in progress may still take tasks.
	Pause(ctx context.Context, by Actor, c PauseChange) (Changed[Gate], error)
	// Resume opens the gate that Pause has closed. It also resets the breaker of a target. It adds an audit entry for
	// each of these changes. It returns the pause, or the breaker if there is no pause, and ErrNotFound if there is
	// neither.
	Resume(ctx context.Context, by Actor, s Subject) (Gate, error)
	// ResumeGate opens the gate with the given id, which must be a pause or a breaker. It adds an audit entry. check,
	// if not nil, gets the gate in the transaction that opens it. If check returns an error, nothing changes, and
	// ResumeGate returns that error. It returns ErrNotFound if no closed pause or breaker has the id. A later pause of
	// the same subject has another id.
	ResumeGate(ctx context.Context, by Actor, id ID, check func(Gate) error) (Gate, error)
	// Gates returns the closed gates in the order in which they were first closed. It includes breakers, but not
	// limits.
	Gates(ctx context.Context) ([]Gate, error)
	// GatesOf returns the closed gate that concerns a task, for each ready task that has one. Of several gates it
	// returns the one that was closed first; pauses take precedence over limits and breakers. It does not count the
	// blocked tasks.
	GatesOf(ctx context.Context, tasks []holdfast.TaskID) (map[holdfast.TaskID]Gate, error)
	// ReleaseBlocked makes blocked tasks due, at most limit of each kind. The order is: tasks of open gates, tasks that
	// get permits, ordered tasks whose turn it is (see Order), tasks that get slots (see Topics). It also opens gates
	// whose time has passed, at most MaxOpened, and adds audit entries for them; the gate of fewer than limit tasks is
	// open when it returns. Janitors call it often. If no gate has opened, no limit is in use and no task with a topic
	// is open, it only reads small tables. Each of its steps is a short transaction. If a step fails, the others still
	// run, so the result counts the released tasks even if ReleaseBlocked returns an error.
	ReleaseBlocked(ctx context.Context, limit int) (Released, error)
}

// Limits of ReleaseBlocked. While a transaction opens gates, no other gate can change, and no worker can register.
const (
	OpenStep  = 300          // maximum number of gates that one transaction opens
	MaxOpened = 5 * OpenStep // maximum number of gates that one call opens, because it may read all gates to find them
)

// Released is the result of ReleaseBlocked.
type Released struct {
	Tasks int // number of tasks that are due now
	// Next is the time after which another call may make tasks due or open gates. 0 means at once. A negative value
	// means that no task waits for a permit, a slot or another check of its key. Tasks can become blocked and gates can
	// open before that time.
	Next time.Duration
	// Waiting reports whether tasks wait for permits or slots that are in use, or for transactions that store ordered
	// tasks. Then a call before Next may make tasks due, too.
	Waiting bool
	// PermitsInUse reports whether attempts had permits at the beginning of the call. When such an attempt ends, a call
	// gives its permit to the next task.
	PermitsInUse bool
}

// Changed is the result of a change.
type Changed[T any] struct {
	Before *T // nil if there was nothing before
	After  T
}

// PauseChange changes the pause of a subject, or creates one. The zero value of a field keeps the present value.
type PauseChange struct {
	Subject
	// For is the time from now to the end of the pause. nil keeps the present end, and 0 removes it: the pause then
	// ends when a person resumes the subject. A new pause has an end only if For sets one. It is at most
	// holdfast.MaxDuration.
	For *time.Duration
	// NoReason removes the reason of the pause. Otherwise the reason of the actor replaces it, unless the actor has
	// none.
	NoReason bool
	// Check, if not nil, gets the present pause, or nil, in the transaction that changes it. If Check returns an error,
	// nothing changes, and Pause returns that error.
	Check func(before *Gate) error
}

// PauseFor returns the change that makes a pause end after d or, if d is 0, when a person resumes the subject.
func PauseFor(s Subject, d time.Duration) PauseChange { return PauseChange{Subject: s, For: &d} }

// Validate returns ErrInvalid if the subject is not valid, or the time is negative or longer than holdfast.MaxDuration.
func (c PauseChange) Validate() error {
	if err := c.Subject.Validate(); err != nil {
		return err
	}
	if c.For != nil {
		return holdfast.CheckDuration("the time of the pause", *c.For)
	}
	return nil
}

// ReasonAfter returns the reason of the pause after the change. before is the present pause, or nil.
func (c PauseChange) ReasonAfter(before *Gate, by Actor) string {
	if before == nil {
		return reasonAfter("", by.Reason, c.NoReason)
	}
	return reasonAfter(before.Reason, by.Reason, c.NoReason)
}

// reasonAfter returns the reason after a change that gives a reason, removes it, or does neither.
func reasonAfter(before, given string, remove bool) string {
	if remove {
		return ""
	}
	return cmp.Or(given, before)
}

// Subject selects the tasks that match every field that is not empty.
type Subject struct {
	Queue string `json:"queue,omitempty"`
	Type  string `json:"type,omitempty"`
	Key   string `json:"key,omitempty"`
	// Target has the form of [holdfast.TargetOf].
	Target string `json:"target,omitempty"`
}

// String returns the subject as the audit log names it: "queue mail", "type http", "key tenant-7",
// "target https://example.com:443".
func (s Subject) String() string {
	switch {
	case s.Queue != "":
		return "queue " + s.Queue
	case s.Type != "":
		return "type " + s.Type
	case s.Key != "":
		return "key " + s.Key
	}
	return "target " + s.Target
}

// ResumeHint returns the hint to resume the subject.
func (s Subject) ResumeHint() holdfast.Hint {
	switch {
	case s.Queue != "":
		return holdfast.Hint{Kind: holdfast.HintResumeQueue, Arg: s.Queue}
	case s.Type != "":
		return holdfast.Hint{Kind: holdfast.HintResumeType, Arg: s.Type}
	case s.Key != "":
		return holdfast.Hint{Kind: holdfast.HintResumeKey, Arg: s.Key}
	}
	return holdfast.Hint{Kind: holdfast.HintResumeTarget, Arg: s.Target}
}

// Validate returns ErrInvalid unless exactly one field is set, to a value that a task can have.
func (s Subject) Validate() error {
	set := 0
	for _, field := range []string{s.Queue, s.Type, s.Key, s.Target} {
		if field != "" {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("%w: a gate needs one queue, type, key or target, and no more", holdfast.ErrInvalid)
	case s.Target != "":
		return holdfast.CheckTarget(s.Target)
	case s.Key != "":
		return holdfast.CheckKey(s.Key)
	}
	return holdfast.NewTask{Queue: cmp.Or(s.Queue, holdfast.DefaultQueue), Type: cmp.Or(s.Type, "any")}.Validate(0)
}

// Selects reports whether the subject selects a task. The task needs its payload only for a target.
func (s Subject) Selects(t *holdfast.Task) bool {
	return s != Subject{} && (s.Queue == "" || s.Queue == t.Queue) && (s.Type == "" || s.Type == t.Type) && (s.Key == "" || s.Key == t.Key) &&
		(s.Target == "" || s.Target == holdfast.TargetOf(t.Type, t.Payload))
}

// GateKind is the reason why a gate is closed.
type GateKind string

// The kinds of gates.
const (
	GatePause GateKind = "pause" // a person has paused the subject
	GateLimit GateKind = "limit" // a limit: closed for tasks without a permit; see Limits
	// GateBreaker is closed for tasks without a permit, because their target fails; see Breakers.
	GateBreaker GateKind = "breaker"
)

// Gate is a closed gate.
type Gate struct {
	ID       ID        `json:"id"`
	Kind     GateKind  `json:"kind"`
	Subject            // the tasks that it concerns
	Per      Per       `json:"per,omitempty"` // of a limit
	Actor              // the person who closed it, or last changed its reason or end
	ClosedAt time.Time `json:"closed_at"`
	Until    time.Time `json:"until,omitzero"`    // zero means until a person resumes the subject
	Breaker  *Breaker  `json:"breaker,omitempty"` // of a breaker
	// Blocked is the number of tasks that are blocked at the gate, at most MaxCountedBlocked. It does not include tasks
	// whose tickets wait in the main queue of a paused queue.
	Blocked int `json:"blocked"`
}

// MaxCountedBlocked is the maximum number of blocked tasks that Gates counts for a gate. Counting more would take too
// long.
const MaxCountedBlocked = 100_000

// BlockedCounts is the result of BlockedByQueue.
type BlockedCounts struct {
	Tasks map[string]int64 // by subqueue; see holdfast.Subqueue
	// Oldest is how long the oldest of these tasks has been due, by subqueue.
	Oldest map[string]time.Duration
	// More means that BlockedByQueue has not read all blocked tasks. Any queue may have more of them than Tasks says.
	More bool
}

// Version returns the part of the gate that an audit entry stores.
func (g Gate) Version() json.RawMessage {
	document, err := json.Marshal(struct {
		Kind   GateKind  `json:"kind"`
		Reason string    `json:"reason,omitempty"`
		Until  time.Time `json:"until,omitzero"`
	}{g.Kind, g.Reason, g.Until})
	if err != nil { // impossible: the values always encode
		panic(err)
	}
	return document
}

// BlockedUntil is the due time of a blocked task. Builds without gates, which may run beside this one, treat it as a
// task that is due very late.
var BlockedUntil = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

// Audit makes the changes that people request, and records them in the audit log. Every method of a store that adds an
// audit entry returns ErrInvalid, and changes nothing, if the actor is not valid.
type Audit interface {
	// Change makes the changes in one transaction and reports for each whether it was made. It refuses a change,
	// without effect, if the state, the attempt or the owner of the task differs from Change.Task. It adds an audit
	// entry for each change that it makes. Each change of a call must be of a different task.
	Change(ctx context.Context, by Actor, changes []Change) ([]bool, error)
	// AuditLog returns audit entries, newest first. It returns fewer than the limit if there are no more, or if
	// AuditPage reports a full page.
	AuditLog(ctx context.Context, f AuditFilter) ([]AuditEntry, error)
}

// Actor is the person who requests a change, with the surface and the reason.
type Actor struct {
	Name    string  `json:"actor" db:"actor"` // a user of the operating system, the name of a token, or a user that a proxy reports
	Surface Surface `json:"surface"`
	Reason  string  `json:"reason,omitempty"`
}

// Limits of an actor, in characters. The audit log stores the actor with each change.
const (
	maxActorName = 200
	maxReason    = 1000
)

// Validate returns ErrInvalid if the name or the reason is too long.
func (a Actor) Validate() error {
	for _, text := range []struct {
		what, value string
		limit       int
	}{{"name of the actor", a.Name, maxActorName}, {"reason", a.Reason, maxReason}} {
		if n := utf8.RuneCountInString(text.value); n > text.limit {
			return fmt.Errorf("%w: the %s has %d characters; at most %d are allowed", holdfast.ErrInvalid, text.what, n, text.limit)
		}
	}
	return nil
}

// Surface is the part of the system that receives a request.
type Surface string

// The surfaces.
const (
	CommandLine Surface = "cli"
	API         Surface = "api"
	Console     Surface = "console"
	Library     Surface = "library" // a program that calls package queue
	Janitor     Surface = "janitor" // the janitor decided, for example to stop an operation
	ByWorker    Surface = "worker"  // a worker decided, because a target has failed
)

// Action is what a person requests, or what a worker does because a target fails (ActionTrip).
type Action string

// The actions. Create and revoke apply to tokens, note to reopen to groups of dead tasks, trip to breakers, pause and
// resume to gates and operations, set and unset to settings and limits, delete and run to schedules. All others apply to
// tasks. Undo also applies to settings, and cancel to operations. Create, edit, pause and resume also apply to schedules,
// and create, set and delete to sources and shard jobs.
const (
	ActionRetry   Action = "retry"
	ActionCancel  Action = "cancel"
	ActionArchive Action = "archive"
	ActionRestore Action = "restore"
	ActionEdit    Action = "edit"
	ActionPurge   Action = "purge" // deletes the task
	ActionUndo    Action = "undo"  // reverses the last change of the task
	ActionCreate  Action = "create"
	ActionRevoke  Action = "revoke"

	ActionNote    Action = "note"    // changes the note of a group
	ActionAssign  Action = "assign"  // changes the owner of a group
	ActionResolve Action = "resolve" // hides a group until it returns
	ActionReopen  Action = "reopen"
	ActionPause   Action = "pause"  // closes a gate, or pauses an operation
	ActionTrip    Action = "trip"   // the breaker of a target trips
	ActionResume  Action = "resume" // opens a gate, or starts or continues an operation
	ActionSet     Action = "set"    // changes a setting, a limit, the weight of a topic, a source or a shard job
	ActionUnset   Action = "unset"  // removes a setting or a limit

	ActionDelete Action = "delete" // ends a schedule, a source or a shard job
	ActionRun    Action = "run"    // stores a task of a schedule at once
)

// Actions returns every action, in the order in which lists show them.
func Actions() []Action {
	return []Action{
		ActionRetry, ActionCancel, ActionArchive, ActionRestore, ActionEdit, ActionPurge, ActionUndo, ActionCreate, ActionRevoke,
		ActionNote, ActionAssign, ActionResolve, ActionReopen, ActionPause, ActionTrip, ActionResume, ActionSet, ActionUnset,
		ActionDelete, ActionRun,
	}
}

// Change is a change of one task. Every action but a purge needs either Move or Edit.
type Change struct {
	Action Action
	// Task is the task as the caller has read it. It needs its payload if Edit has one.
	Task holdfast.Task
	Move *holdfast.Transition
	Edit *Edit
}

// Edit has the new values of a task. The zero value of a field keeps the present value. An edit gives the task a new
// attempt number, so that tickets from before the edit are stale. A ready task gets a new ticket. The task must be
// neither running nor done.
type Edit struct {
	Payload     json.RawMessage    `json:"payload,omitempty"`
	Key         string             `json:"-"` // see holdfast.Task.ImportedKey; stored with a new payload
	Queue       string             `json:"queue,omitempty"`
	Priority    *holdfast.Priority `json:"priority,omitempty"`     // nil keeps the present priority
	MaxAttempts int                `json:"max_attempts,omitempty"` // -1 means the setting of the type in the worker
	RunAt       time.Time          `json:"run_at,omitzero"`        // when a ready task becomes due
	Tags        *[]string          `json:"tags,omitempty"`         // all tags; nil keeps the present tags
	// SkippedValidation records in the audit log that the payload was not validated by its type.
	SkippedValidation bool `json:"skipped_validation,omitempty"`
}

// AuditEntry records one change.
type AuditEntry struct {
	ID ID        `json:"id"`
	At time.Time `json:"at"`
	Actor
	Action    Action          `json:"action"`
	Task      holdfast.TaskID `json:"task,omitempty"`
	Operation ID              `json:"operation,omitempty"` // the operation that made the change
	Subject   string          `json:"subject,omitempty"`   // what was changed, if it is not a task: "group 3f9ad02c41b7e685"
	// Before and After have the members that the change replaced. They are null if there are none.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// auditPageBytes is the size of texts and documents at which a page of the audit log ends.
const auditPageBytes = 4 << 20

// AuditPage returns the entries up to the first one with which their texts and documents reach 4 MiB. full reports that
// they do. Then there may be more entries, even if the page has fewer than its limit.
func AuditPage(entries []AuditEntry) (page []AuditEntry, full bool) {
	size := 0
	for i, e := range entries {
		size += len(e.Name) + len(e.Reason) + len(e.Subject) + len(e.Before) + len(e.After)
		if size >= auditPageBytes {
			return entries[:i+1], true
		}
	}
	return entries, false
}

// AuditFilter selects audit entries. The zero value selects all.
type AuditFilter struct {
	Task      holdfast.TaskID
	Operation ID
	Subject   string
	Actor     string
	Action    Action
	// Single leaves out the changes of tasks that operations made. Each operation still has its own entries.
	Single bool
	// Since and Until, if not zero, select the entries in [Since, Until).
	Since, Until time.Time
	Before       ID  // if not 0, only smaller ids; for the next page
	Limit        int // at most this many; 0 means 50
}

// ID identifies an operation or an entry of the audit log. Ids increase, with gaps. In JSON an id is a string, so that no
// reader rounds it.
type ID int64

// String returns the id in decimal.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseID parses an id: a positive decimal number. Returns ErrInvalid if text is anything else.
func ParseID(text string) (ID, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: id %q is not a positive number", holdfast.ErrInvalid, text)
	}
	return ID(n), nil
}

// Version is a task before or after a change, as an audit entry stores it. It has the values that a person can change,
// and those that an undo compares.
type Version struct {
	Type        string             `json:"type,omitempty"` // of a purged task
	State       holdfast.State     `json:"state,omitempty"`
	Attempt     int                `json:"attempt,omitempty"`
	Failures    int                `json:"failures"`
	Crashes     int                `json:"crashes"`
	Deferrals   int                `json:"deferrals"`
	MaxAttempts int                `json:"max_attempts,omitempty"`
	Queue       string             `json:"queue,omitempty"`
	Priority    *holdfast.Priority `json:"priority,omitempty"`
	RunAt       time.Time          `json:"run_at,omitzero"`
	Tags        *[]string          `json:"tags,omitempty"`
	Payload     json.RawMessage    `json:"payload,omitempty"`
	Key         string             `json:"idempotency_key,omitempty"` // see holdfast.Task.ImportedKey; present with a payload
	Error       string             `json:"error,omitempty"`           // of a purged task
	// SkippedValidation is set after an edit whose payload was not validated.
	SkippedValidation bool `json:"skipped_validation,omitempty"`
}

// Document returns the version as JSON with every character of the payload, because the idempotency key depends on
// them. Package json would remove white space.
func (v Version) Document() (json.RawMessage, error) {
	payload := v.Payload
	v.Payload = nil
	document, err := json.Marshal(v)
	if err != nil || len(payload) == 0 {
		return document, err
	}
	document = append(document[:len(document)-1], `,"payload":`...)
	return append(append(document, payload...), '}'), nil
}

// Subqueue returns the new subqueue of the task if the change edits its queue or its priority, and "" otherwise.
func (c *Change) Subqueue() string {
	e := c.Edit
	if e == nil || e.Queue == "" && e.Priority == nil {
		return ""
	}
	priority := c.Task.Priority
	if e.Priority != nil {
		priority = *e.Priority
	}
	return holdfast.Subqueue(cmp.Or(e.Queue, c.Task.Queue), priority)
}

// Versions returns the task before and after the change. After a purge there is no version. The payload is present only
// if the change replaces it.
func (c *Change) Versions() (before Version, after *Version) {
	t := &c.Task
	before = Version{
		State: t.State, Attempt: t.Attempt, Failures: t.Failures, Crashes: t.Crashes, Deferrals: t.Deferrals,
		MaxAttempts: t.MaxAttempts,
	}
	next := before
	switch {
	case c.Move != nil:
		next = Version{
			State: c.Move.To, Attempt: c.Move.NextAttempt, Failures: c.Move.Failures, Crashes: c.Move.Crashes,
			Deferrals: c.Move.Deferrals, MaxAttempts: c.Move.MaxAttempts,
		}
	case c.Edit != nil:
		next.Attempt++
		if len(c.Edit.Payload) > 0 {
			before.Payload, next.Payload = t.Payload, c.Edit.Payload
			before.Key, next.Key = t.ImportedKey, c.Edit.Key
			next.SkippedValidation = c.Edit.SkippedValidation
		}
		if c.Edit.Queue != "" {
			before.Queue, next.Queue = t.Queue, c.Edit.Queue
		}
		if c.Edit.Priority != nil {
			before.Priority, next.Priority = &t.Priority, c.Edit.Priority
		}
		if c.Edit.MaxAttempts != 0 {
			next.MaxAttempts = max(0, c.Edit.MaxAttempts)
		}
		if !c.Edit.RunAt.IsZero() {
			before.RunAt, next.RunAt = t.NextRunAt, c.Edit.RunAt
		}
		if c.Edit.Tags != nil {
			had := append([]string{}, t.Tags...)
			before.Tags, next.Tags = &had, c.Edit.Tags
		}
	default:
		before.Type, before.Queue, before.Error = t.Type, t.Queue, t.LastError
		if t.Priority != holdfast.PriorityNormal {
			before.Priority = &t.Priority
		}
		return before, nil
	}
	return before, &next
}

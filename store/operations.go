package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfastq/holdfast"
)

// Operations stores operations. An operation applies one action to each task that a filter selects, from the newest
// task to the oldest. Any process may make the next step, and may end at any point. A step is one transaction, and the
// version of the operation lets only one process make it.
type Operations interface {
	// CreateOperation stores an operation, planned or running, and returns it with its id, its times and its version.
	// The operation excludes tasks that are created after it.
	CreateOperation(ctx context.Context, by Actor, o Operation) (Operation, error)
	// Operation returns one operation. Returns ErrNotFound if it does not exist.
	Operation(ctx context.Context, id ID) (Operation, error)
	// ListOperations returns operations, newest first.
	ListOperations(ctx context.Context, f OperationFilter) ([]Operation, error)
	// StepOperation makes a step in one transaction and returns the operation after it. It returns ErrConflict, and
	// changes nothing, if the version of the operation differs from that of step.From.
	StepOperation(ctx context.Context, step OperationStep) (Operation, error)
	// FirstAttempts returns at most limit tasks that the operation has retried and whose first new attempt has ended.
	// It omits tasks that a step has counted already.
	FirstAttempts(ctx context.Context, operation ID, limit int) ([]FirstAttempt, error)
}

// Operation is one action on many tasks, made in steps.
type Operation struct {
	ID     ID     `json:"id"`
	Action Action `json:"action"` // any but ActionUndo
	// Query is the filter as a person wrote it. Filter is the meaning of the query when the operation was created.
	Query  string `json:"query"`
	Filter Filter `json:"-"`
	// Foreign means that a newer build created the operation, with conditions that this build does not know. This build
	// must not make steps of it.
	Foreign bool            `json:"-"`
	Patch   json.RawMessage `json:"patch,omitempty"` // the JSON Patch of an edit
	// SkipValidation means that an edit does not validate payloads by the JSON Schema of their type.
	SkipValidation bool `json:"skip_validation,omitempty"`
	Actor
	State OperationState `json:"state"`
	// Note explains why the operation has stopped, why it could not change a task, or how many retried tasks failed
	// again.
	Note string `json:"note,omitempty"`

	Rate int `json:"rate"` // maximum number of tasks per second; 0 means no limit
	// Ramp has the ends of the steps of a retry, in percent of Total. After each step the operation waits for the first
	// attempts of its tasks. Empty means one step.
	Ramp []int `json:"ramp,omitempty"`
	// StopAbove is a share of failed first attempts in a step, from 0 to 1. A retry stops above it. 1 means never.
	StopAbove float64 `json:"stop_above"`
	// StepTimeout is how long a step waits for first attempts. Then it uses the results so far.
	StepTimeout time.Duration `json:"-"`

	Limit     int64 `json:"limit,omitempty"` // maximum number of tasks; 0 means all
	Total     int64 `json:"total"`           // number of matching tasks when the operation was created
	Changed   int64 `json:"changed"`         // tasks to which the action was applied
	Skipped   int64 `json:"skipped"`         // tasks that had changed, or whose state did not allow the action
	Refused   int64 `json:"refused"`         // tasks that the patch did not fit, or whose new payload was not valid
	Succeeded int64 `json:"succeeded"`       // retried tasks whose first new attempt succeeded
	Failed    int64 `json:"failed"`          // retried tasks whose first new attempt failed
	Judged    int64 `json:"judged"`          // retried tasks whose first new attempt has ended, or that were cancelled

	Step          int   `json:"step"` // index in Ramp
	StepSucceeded int64 `json:"-"`
	StepFailed    int64 `json:"-"`
	// The next tasks have ids below Cursor; 0 means that the newest task is next. Scanned means that there are no more
	// tasks.
	Cursor  holdfast.TaskID `json:"-"`
	Scanned bool            `json:"-"`
	// Accepted, if not 0, is the lowest id of the tasks that were retried before a person resumed the stopped
	// operation. Their failures do not count for the step.
	Accepted holdfast.TaskID `json:"-"`

	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// AdvancedAt is the time up to which the rate is used up. WaitingAt is when the last task of the step was changed,
	// or zero while the step has more tasks.
	AdvancedAt time.Time `json:"-"`
	WaitingAt  time.Time `json:"-"`
	Version    int64     `json:"-"`
}

// Document returns an operation as JSON for the audit log.
func (o *Operation) Document() json.RawMessage {
	document, err := json.Marshal(struct {
		State   OperationState `json:"state"`
		Query   string         `json:"query"`
		Note    string         `json:"note,omitempty"`
		Total   int64          `json:"total"`
		Changed int64          `json:"changed"`
		Skipped int64          `json:"skipped"`
	}{o.State, o.Query, o.Note, o.Total, o.Changed, o.Skipped})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return document
}

// AuditAction returns the action of the audit entry for a change of the operation. from is the operation before the
// change, or nil if it is new. If a person has resumed, paused or cancelled it, the action is ActionResume, ActionPause
// or ActionCancel.
func (o *Operation) AuditAction(from *Operation) Action {
	if from == nil || from.State == o.State {
		return o.Action
	}
	switch o.State {
	case OperationRunning:
		return ActionResume
	case OperationPaused:
		return ActionPause
	case OperationCancelled:
		return ActionCancel
	}
	return o.Action
}

// Visited returns the number of tasks that the operation has processed.
func (o *Operation) Visited() int64 { return o.Changed + o.Skipped + o.Refused }

// OperationState is the state of an operation.
type OperationState string

// The states of an operation.
const (
	OperationPlanned   OperationState = "planned"
	OperationRunning   OperationState = "running"
	OperationPaused    OperationState = "paused"  // a person has paused it
	OperationStopped   OperationState = "stopped" // too many first attempts failed
	OperationDone      OperationState = "done"
	OperationCancelled OperationState = "cancelled"
)

// Final reports whether the state never changes.
func (s OperationState) Final() bool { return s == OperationDone || s == OperationCancelled }

// OperationFilter selects operations. The zero value selects all.
type OperationFilter struct {
	States []OperationState
	Before ID  // if not 0, only smaller ids; for the next page
	Limit  int // at most this many; 0 means 50
}

// OperationStep is one step of an operation.
type OperationStep struct {
	From Operation // as the caller has read it
	// To has the new values. The store sets Changed and Skipped according to the changes that it made, and sets the
	// version. If the state becomes final, the store sets FinishedAt.
	To      Operation
	Changes []Change // their audit entries name the actor of the operation
	Judged  []holdfast.TaskID
	// By is the actor of a change of the state, for the audit entry. The state may change only if By is set.
	By *Actor
}

// FirstAttempt is the result of the first new attempt of a retried task.
type FirstAttempt struct {
	Task   holdfast.TaskID
	Result FirstResult
}

// FirstResult is the result of a first attempt.
type FirstResult string

// The results of first attempts. If an attempt was handed back or deferred, the next attempt counts instead.
const (
	FirstSucceeded FirstResult = "succeeded"
	FirstFailed    FirstResult = "failed" // it failed or crashed
	FirstOther     FirstResult = "other"  // a person cancelled, archived or purged the task, or undid its retry
)

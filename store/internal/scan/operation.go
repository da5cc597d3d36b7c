package scan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Operation is an operation, as {{operation}} in sql/parts.sql of each adapter selects it.
type Operation struct {
	ID            int64
	Version       int64
	State         store.OperationState
	Action        store.Action
	Query         string
	Filter        string // JSON; so are Patch and Ramp
	Patch         string
	Unvalidated   bool
	Actor         string
	Surface       store.Surface
	Reason        string
	Note          string
	Rate          int
	Ramp          string
	StopAbove     float64 `db:"stop_above"`
	StepTimeout   int64   `db:"step_timeout"` // microseconds
	MaxTasks      int64   `db:"max_tasks"`
	Total         int64
	Changed       int64
	Skipped       int64
	Refused       int64
	Succeeded     int64
	Failed        int64
	Judged        int64
	Step          int
	StepSucceeded int64 `db:"step_succeeded"`
	StepFailed    int64 `db:"step_failed"`
	Cursor        holdfast.TaskID
	Scanned       bool
	Accepted      holdfast.TaskID
	CreatedAt     Time `db:"created_at"`
	StartedAt     Time `db:"started_at"`
	FinishedAt    Time `db:"finished_at"`
	AdvancedAt    Time `db:"advanced_at"`
	WaitingAt     Time `db:"waiting_at"`
}

// Operations returns the operations of all rows.
func Operations(rows []Operation) ([]store.Operation, error) {
	operations := make([]store.Operation, len(rows))
	for i := range rows {
		var err error
		if operations[i], err = rows[i].value(); err != nil {
			return nil, err
		}
	}
	return operations, nil
}

func (r *Operation) value() (store.Operation, error) {
	o := store.Operation{
		ID: store.ID(r.ID), Version: r.Version, State: r.State, Action: r.Action, Query: r.Query, Patch: document(r.Patch),
		SkipValidation: r.Unvalidated, Actor: store.Actor{Name: r.Actor, Surface: r.Surface, Reason: r.Reason}, Note: r.Note,
		Rate: r.Rate, StopAbove: r.StopAbove, StepTimeout: time.Duration(r.StepTimeout) * time.Microsecond,
		Limit: r.MaxTasks, Total: r.Total, Changed: r.Changed, Skipped: r.Skipped, Refused: r.Refused,
		Succeeded: r.Succeeded, Failed: r.Failed, Judged: r.Judged,
		Step: r.Step, StepSucceeded: r.StepSucceeded, StepFailed: r.StepFailed, Cursor: r.Cursor, Scanned: r.Scanned, Accepted: r.Accepted,
		CreatedAt: r.CreatedAt.Time, StartedAt: r.StartedAt.Time, FinishedAt: r.FinishedAt.Time,
		AdvancedAt: r.AdvancedAt.Time, WaitingAt: r.WaitingAt.Time,
	}
	if err := json.Unmarshal([]byte(r.Ramp), &o.Ramp); err != nil {
		return o, fmt.Errorf("operation %d: ramp: %w", r.ID, err)
	}
	// If this build ignored an unknown condition of the filter, it would select too many tasks.
	decoder := json.NewDecoder(bytes.NewReader([]byte(r.Filter)))
	decoder.DisallowUnknownFields()
	o.Foreign = decoder.Decode(&o.Filter) != nil
	return o, nil
}

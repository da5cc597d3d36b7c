package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Effects stores the values that attempts of a task leave besides their results. Each value has a name that is unique in
// its task. A value exists as long as the row of its task.
type Effects interface {
	// SaveData stores values for an attempt that runs. A value replaces the value of the same name. SaveData returns
	// ErrFenced, and stores nothing, if the attempt does not run any more.
	SaveData(ctx context.Context, by Fence, values []Datum) error
	// TaskData returns the values of tasks, in the order of tasks and names. It returns only values with one of the
	// names, or all values if names is empty.
	TaskData(ctx context.Context, tasks []holdfast.TaskID, names ...string) ([]Datum, error)
}

// Datum is a value that an attempt has stored.
type Datum struct {
	Task    holdfast.TaskID // SaveData ignores it, Attempt and At
	Name    string
	Attempt int // the attempt that stored the value
	Value   json.RawMessage
	At      time.Time
}

// The names of values.
const (
	OutputData     = "output"     // the result of the task, stored with its success
	CheckpointData = "checkpoint" // the state from which the next attempt continues
	ProgressData   = "progress"   // a Progress
	stepPrefix     = "step/"
)

// StepData returns the name of the value of a step.
func StepData(step string) string { return stepPrefix + step }

// Step returns the name of the step, or "" if the value is not that of a step.
func (d *Datum) Step() string {
	if step, ok := strings.CutPrefix(d.Name, stepPrefix); ok {
		return step
	}
	return ""
}

// Progress is the value with the name ProgressData.
type Progress struct {
	Percent int    `json:"percent"` // from 0 to 100
	Note    string `json:"note,omitempty"`
}

// Progress returns the value as a progress. It returns false if the value is not a progress, or if another program
// wrote it in another form.
func (d *Datum) Progress() (p Progress, ok bool) {
	ok = d.Name == ProgressData && json.Unmarshal(d.Value, &p) == nil
	return p, ok
}

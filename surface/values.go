package surface

import (
	"encoding/json"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Values are what the attempts of a task have stored besides their results. Without a value a member is absent, and the
// list of the steps is empty.
type Values struct {
	Output     json.RawMessage `json:"output,omitempty" doc:"The output of the task, stored together with its success."`
	Progress   *Progress       `json:"progress,omitempty" doc:"How far an attempt was. If its number is not that of the task, an earlier attempt has reported it."`
	Checkpoint *Value          `json:"checkpoint,omitempty" doc:"The state from which the next attempt continues."`
	Steps      []Step          `json:"steps" doc:"The values of the steps that have succeeded, by name. They do not run again."`
}

// Progress is the newest progress of a task.
type Progress struct {
	Percent int       `json:"percent" minimum:"0" maximum:"100"`
	Note    string    `json:"note,omitempty"`
	Attempt int       `json:"attempt" doc:"The attempt that reported the progress."`
	At      time.Time `json:"at"`
}

// Value is a value that an attempt has stored.
type Value struct {
	Value   json.RawMessage `json:"value"`
	Attempt int             `json:"attempt" doc:"The attempt that stored the value."`
	At      time.Time       `json:"at"`
}

// Step is the value of a step.
type Step struct {
	Name string `json:"name"`
	Value
}

// valuesOf returns the JSON form of the values of a task. It leaves out values that this version does not know.
func valuesOf(data []store.Datum) (v Values) {
	v.Steps = []Step{}
	for i := range data {
		d := &data[i]
		value := Value{d.Value, d.Attempt, d.At}
		switch step := d.Step(); {
		case step != "":
			v.Steps = append(v.Steps, Step{step, value})
		case d.Name == store.OutputData:
			v.Output = d.Value
		case d.Name == store.CheckpointData:
			v.Checkpoint = &value
		default:
			if p, ok := d.Progress(); ok {
				v.Progress = &Progress{p.Percent, p.Note, d.Attempt, d.At}
			}
		}
	}
	return v
}

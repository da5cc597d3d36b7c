package explain

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// SliceOrigin is the slice of a source that a task pulls, according to the unique key of the task.
type SliceOrigin struct {
	Source string    `json:"source"` // a source or a backfill
	From   time.Time `json:"from"`   // without the overlap
	// To is the end of the slice. It is zero if the payload, which a person may have edited, has no end.
	To time.Time `json:"to,omitzero"`
	// State is the state of the source. It is empty if the store knows no such source: then another program may have
	// chosen the key.
	State store.PlanState `json:"state,omitempty"`
	Text  string          `json:"text"`
}

// slice describes the slice of the task, and its source. It returns nil if the unique key names none.
func (f *Facts) slice() *SliceOrigin {
	name, from, ok := plan.SliceOrigin(f.Task.Unique)
	if !ok || f.Source == nil {
		return nil
	}
	s := &SliceOrigin{Source: name, From: from}
	s.Text = fmt.Sprintf("pulls the slice of the source %s from %s", name, from.Format(time.RFC3339Nano))
	var payload plan.Slice
	if json.Unmarshal(f.Task.Payload, &payload) == nil && !payload.To.IsZero() {
		s.To = payload.To
		s.Text += " to " + payload.To.Format(time.RFC3339Nano)
		if overlap := from.Sub(payload.From); overlap > 0 && !payload.From.IsZero() {
			s.Text += fmt.Sprintf(", and the %s before it", overlap)
		}
	}
	switch last := f.Source.Last; {
	case f.Source.Plan != nil:
		s.State = f.Source.Plan.State
		if _, progress, err := plan.ReadSource(*f.Source.Plan); err != nil {
			s.Text += "; a newer version has stored the source"
		} else {
			s.Text += fmt.Sprintf("; the source is done through %s, with %d open and %d dead slices",
				progress.DoneThrough.Format(time.RFC3339Nano), progress.Open, progress.Dead)
		}
	case last == nil:
		s.Text = unknownOrigin("source", name)
	default:
		var end string
		s.State, end = f.ended("source", *last)
		s.Text += end
	}
	return s
}

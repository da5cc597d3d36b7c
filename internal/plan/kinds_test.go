package plan

import (
	"errors"
	"testing"
	"time"
)

// An engine leaves a plan alone if it does not know the kind. It does not treat the plan as a schedule.
func TestAPlanOfAnUnknownKindHasNoStep(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := Schedule{Every: Duration(time.Hour), Missed: MissedOne, Overlap: 1, Task: Task{Type: "mail", Queue: "default"}}
	p, err := s.Plan("hourly", now)
	if err != nil {
		t.Fatal(err)
	}
	p.Kind = "reminder"
	if r := New(nil).makeStep(t.Context(), p, now.Add(2*time.Hour)); !errors.Is(r.err, errUnknown) {
		t.Errorf("a step of a plan of the kind %s: %v", p.Kind, r.err)
	}
}

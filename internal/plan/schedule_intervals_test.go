package plan

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// The first interval has the length of all others, although the store creates a plan later than it was computed.
func TestIntervalsBeginWhenThePlanIsComputed(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 9, 0, 0, 999_900_000, time.UTC)
	s := Schedule{Every: Duration(time.Hour), Missed: MissedOne, Overlap: 1, Task: Task{Type: "mail", Queue: "default"}}
	p, err := s.Plan("hourly", now)
	if err != nil {
		t.Fatal(err)
	}
	p.CreatedAt = now.Add(time.Millisecond) // in the next second
	spec, progress, err := ReadSchedule(p)
	if err != nil {
		t.Fatal(err)
	}
	first := progress.Next
	d, err := spec.step(p, progress, nil, first.Add(5*time.Second))
	if err != nil || d.state != store.PlanRunning || len(d.fire) != 1 || !d.fire[0].Equal(first) {
		t.Fatalf("the step is %+v: %v", d, err)
	}
	if second := d.progress.Next; second.Sub(first) != time.Hour {
		t.Errorf("the first moments are %s and %s, want an hour between them", first, second)
	}
}

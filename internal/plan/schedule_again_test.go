package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A second backfill that runs moments again stores tasks of its own, whatever the length of the name.
func TestBackfillsThatRunAgainHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 9, 0, 0, 123456000, time.UTC)
	of := store.Plan{Kind: store.ScheduleKind, Name: strings.Repeat("n", MaxName), CreatedAt: now}
	s := Schedule{Every: Duration(time.Hour), Missed: MissedOne, Overlap: 1, Start: now, Task: Task{Type: "mail", Queue: "default"}}
	keys := make(map[string]bool)
	for i := range 3 {
		again, name, err := s.Backfill(of, now, now.Add(10*time.Hour), 1, true)
		if err != nil {
			t.Fatal(err)
		}
		p, err := again.Plan(name, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		stored, progress, err := ReadSchedule(p)
		if err != nil {
			t.Fatal(err)
		}
		task := stored.task(name, progress.Next)
		if err := task.Validate(1000); err != nil {
			t.Errorf("%s: %v", task.Unique, err)
		}
		if from, at, ok := ScheduleOrigin(task.Unique); !ok || from != of.Name || !at.Equal(progress.Next) {
			t.Errorf("%s is of %s at %s, %v", task.Unique, from, at, ok)
		}
		if len(task.Unique) > holdfast.MaxKeyLength || keys[task.Unique] {
			t.Errorf("key %s with %d bytes is too long or not new", task.Unique, len(task.Unique))
		}
		keys[task.Unique] = true
	}
}

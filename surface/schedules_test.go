package surface

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

// clockReads counts the reads of the clock of the store.
type clockReads struct {
	desk.Store
	n int
}

func (c *clockReads) Now(ctx context.Context) (time.Time, error) {
	c.n++
	return c.Store.Now(ctx)
}

// A new schedule is checked once and made with one time, so that the times that a person sees are those that are stored.
func TestANewScheduleIsMadeOnce(t *testing.T) {
	t.Parallel()
	now, checks := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC), 0
	clock := &clockReads{Store: desk.Without(memory.New(func() time.Time { return now }).Client(nil))}
	b := &app.Backend{Store: clock, Check: map[string]func([]byte) error{"report": func([]byte) error { checks++; return nil }}}
	var shown ScheduleDetails
	d, _, err := CreateSchedule(t.Context(), b, store.Actor{Name: "anna", Surface: store.CommandLine}, NewSchedule{
		Name: "nightly", ScheduleTimes: ScheduleTimes{Every: new("1h")}, Task: ScheduleTask{Type: "report"},
	}, func(d ScheduleDetails) {
		shown = d
		now = now.Add(time.Minute) // before it is stored
	})
	if err != nil {
		t.Fatal(err)
	}
	if checks != 1 || clock.n != 1 || len(shown.Next) == 0 || !d.Next[0].Equal(shown.Next[0]) {
		t.Errorf("%d checks, %d reads of the clock, next at %v, shown %v", checks, clock.n, d.Next, shown.Next)
	}
}

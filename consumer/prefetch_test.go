package consumer

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHowManyMessagesAreSentAhead(t *testing.T) {
	t.Parallel()
	type pace struct {
		tickets, messages int // of a page
		every             time.Duration
	}
	for _, c := range []struct {
		name string
		pace pace
		want int // of at most 20, for 10 executors
	}{
		{"single tickets, fast", pace{10, 10, time.Millisecond}, 20},
		{"single tickets, slow", pace{1, 1, time.Second}, 20},
		{"shared messages of slow tasks", pace{62, 1, 3 * time.Second}, 1},
		{"shared messages of quick tasks", pace{62, 1, 2 * time.Millisecond}, 20},
		{"shared messages of tasks in between", pace{62, 1, 40 * time.Millisecond}, 20}, // 12 would be too small a change
		{"a few tickets in each", pace{8, 2, 400 * time.Millisecond}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newPrefetchEstimate(10, 20)
				for range 50 {
					time.Sleep(c.pace.every)
					a.add(c.pace.tickets, c.pace.messages)
				}
				if a.messages != c.want {
					t.Errorf("%d messages are sent ahead, want %d", a.messages, c.want)
				}
			})
		})
	}
}

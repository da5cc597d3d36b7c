package queuetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
)

var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start of the clock

// pulled returns a queue with sources, and the slices that the handler has pulled.
func pulled(t *testing.T, sources ...queue.Source) (q *queuetest.Queue, ran *[]string) {
	t.Helper()
	q, ran = queuetest.New(t), new([]string)
	must(t, queue.HandleSlices(q.Client, "pull", func(_ context.Context, _ holdfast.Task, s queue.Slice) error {
		*ran = append(*ran, s.Source+" "+s.From.Format("02T15:04:05")+"-"+s.To.Format("02T15:04:05"))
		return nil
	}))
	for _, s := range sources {
		s.Type = "pull"
		if _, err := q.SetSource(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return q, ran
}

func TestNextSlice(t *testing.T) {
	t.Parallel()
	q, ran := pulled(t, queue.Source{Name: "shop", Every: time.Hour, Overlap: 5 * time.Second, Lag: time.Minute, Start: queue.Ago(2 * time.Hour), InFlight: 2})
	first := q.NextSlice("shop")
	if again := q.NextSlice("shop"); first.ID != again.ID || first.Key != "shop" || !q.Now().Equal(midnight) {
		t.Errorf("slices %+v and %+v at %s", first, again, q.Now())
	}
	for range 4 {
		q.NextSlice("shop")
		q.RunOne()
	}
	requireRan(t, ran, "shop 31T21:59:55-31T23:00:00, shop 31T22:59:55-01T00:00:00, shop 31T23:59:55-01T01:00:00, shop 01T00:59:55-01T02:00:00")
	if now := midnight.Add(2*time.Hour + time.Minute); !q.Now().Equal(now) {
		t.Errorf("the clock is at %s, want %s", q.Now(), now)
	}
}

// Sources store their slices while the clock passes, as many as may be in flight, and fast.
func TestAdvanceStoresSlices(t *testing.T) {
	t.Parallel()
	q, ran := pulled(t,
		queue.Source{Name: "one", Every: time.Second},
		queue.Source{Name: "two", Every: time.Hour, InFlight: 2},
		queue.Source{Name: "three", Every: 24 * time.Hour, InFlight: 1000})
	q.Advance(36 * time.Hour)
	if n := len(q.Tasks()); n != 4 {
		t.Errorf("%d slices, want 1, 2 and 1", n)
	}
	q.RunDue()
	for i, want := range []string{"one 01T00:00:00-01T00:00:01", "two 01T00:00:00-01T01:00:00", "two 01T01:00:00-01T02:00:00", "three 01T00:00:00-02T00:00:00"} {
		if (*ran)[i] != want {
			t.Errorf("slice %d is %s, want %s", i, (*ran)[i], want)
		}
	}
	q.Advance(30 * 24 * time.Hour)
	q.RunDue()
	three := 0
	for _, slice := range *ran {
		if strings.HasPrefix(slice, "three ") {
			three++
		}
	}
	if three != 31 {
		t.Errorf("%d slices of three ran, want one a day", three)
	}
}

// A slice that fails is ready again, and a dead one does not stop its source. A backfill ends.
func TestNextSliceAfterFailures(t *testing.T) {
	t.Parallel()
	q := queuetest.New(t)
	failing := true
	must(t, queue.HandleSlices(q.Client, "pull", func(context.Context, holdfast.Task, queue.Slice) error {
		if failing {
			return errors.New("the platform is down")
		}
		return nil
	}))
	_, err := q.SetSource(t.Context(), queue.Source{Name: "shop", Type: "pull", Every: time.Minute, MaxAttempts: 2})
	must(t, err)
	first := q.NextSlice("shop")
	q.RunOne()
	if again := q.NextSlice("shop"); again.ID != first.ID || again.Failures != 1 {
		t.Errorf("after a failure the next slice is %+v", again)
	}
	if last := q.RunOne(); last.State != holdfast.Dead {
		t.Errorf("the slice is %s", last.State)
	}
	failing = false
	if second := q.NextSlice("shop"); second.ID == first.ID {
		t.Error("a dead slice stops the source")
	}
	q.RunDue()
	name, err := q.BackfillSource(t.Context(), "shop", midnight, midnight.Add(time.Minute), 0, "the platform was down")
	must(t, err)
	if task := q.NextSlice(name); task.Key != "shop" || q.RunOne().State != holdfast.Done {
		t.Errorf("slice %+v", task)
	}
}

func TestNextSliceFails(t *testing.T) {
	t.Parallel()
	for want, call := range map[string]func(q *queuetest.Queue){
		"there is no source none": func(q *queuetest.Queue) { q.NextSlice("none") },
		"stored no slice":         func(q *queuetest.Queue) { q.NextSlice("default") },
	} {
		text := fatalText(t, call, func(q *queuetest.Queue) {
			_, err := q.SetSource(t.Context(), queue.Source{Name: queue.DefaultSource, InFlight: 2})
			must(t, err)
		})
		if !strings.Contains(text, want) {
			t.Errorf("failed with %q, want %q", text, want)
		}
	}
}

package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// figureKey is a figure without its number.
type figureKey struct {
	queue string
	kind  store.FigureKind
}

// fakeFigures implements figureStore in memory.
type fakeFigures struct {
	mu      sync.Mutex
	fail    error // of the next calls that write
	hang    bool  // writes wait for the end of their context
	minutes map[time.Time]map[figureKey]int64
	queues  []store.Queue
	reads   int // calls of Queues
	pruned  int // calls of PruneFigures
}

func (f *fakeFigures) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (f *fakeFigures) Queues(context.Context) ([]store.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return f.queues, nil
}

func (f *fakeFigures) AddFigures(ctx context.Context, added []store.Figure) error {
	if f.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	if len(added) > store.MaxFigures {
		return fmt.Errorf("%d figures", len(added))
	}
	minute := time.Now().Truncate(time.Minute).UTC()
	if f.minutes == nil {
		f.minutes = make(map[time.Time]map[figureKey]int64)
	}
	if f.minutes[minute] == nil {
		f.minutes[minute] = make(map[figureKey]int64)
	}
	for _, a := range added {
		key := figureKey{a.Queue, a.Kind}
		if _, set := f.minutes[minute][key]; !set || !a.Kind.Level() {
			f.minutes[minute][key] += a.N
		}
	}
	return nil
}

func (f *fakeFigures) ListFigures(context.Context, string, time.Duration, time.Duration) ([]store.FigurePoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	minute := time.Now().Truncate(time.Minute).UTC()
	point := store.FigurePoint{At: minute, Minutes: 1, Figures: make(map[store.FigureKind]int64)}
	for key, n := range f.minutes[minute] {
		if key.queue == store.AllQueues {
			point.Figures[key.kind] = n
		}
	}
	if len(point.Figures) == 0 {
		return nil, nil
	}
	return []store.FigurePoint{point}, nil
}

func (f *fakeFigures) PruneFigures(context.Context, int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pruned++
	return 0, nil
}

// sum returns the sum of all minutes.
func (f *fakeFigures) sum() map[figureKey]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	sums := make(map[figureKey]int64)
	for _, figures := range f.minutes {
		for key, n := range figures {
			sums[key] += n
		}
	}
	return sums
}

func settled(queue string, event holdfast.Event) holdfast.Observation {
	return holdfast.Observation{Kind: holdfast.ObservedSettled, Queue: queue, Event: event, Count: 1}
}

func quiet() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// seen is an observer that counts.
type seen struct{ n int }

func (s *seen) Observe(holdfast.Observation) { s.n++ }

func TestFlowsAreCounted(t *testing.T) {
	t.Parallel()
	next := new(seen)
	counts := newFlowCounts(next)
	all := []holdfast.Observation{
		settled("a", holdfast.EventComplete), settled("a", holdfast.EventComplete), settled("b", holdfast.EventComplete),
		settled("a", holdfast.EventRetry), settled("a", holdfast.EventGiveUp), settled("a", holdfast.EventDefer), settled("a", holdfast.EventInterrupt), settled("a", holdfast.EventCancel),
		{Kind: holdfast.ObservedRecovered, Queue: "b", Event: holdfast.EventCrash, Count: 5}, {Kind: holdfast.ObservedRecovered, Queue: "b", Event: holdfast.EventGiveUp, Count: 2},
		{Kind: holdfast.ObservedFenced, Count: 3}, {Kind: holdfast.ObservedClaimed, Queue: "a", Count: 9}, {Kind: holdfast.ObservedRefused, Queue: "a", Count: 9},
	}
	for _, o := range all {
		counts.Observe(o)
	}
	got := make(map[figureKey]int64)
	for _, f := range counts.take() {
		got[figureKey{f.Queue, f.Kind}] += f.N
	}
	want := map[figureKey]int64{
		{"a", store.FigureSucceeded}: 2, {"b", store.FigureSucceeded}: 1, {"", store.FigureSucceeded}: 3,
		{"a", store.FigureFailed}: 2, {"", store.FigureFailed}: 2, {"a", store.FigureDied}: 1, {"b", store.FigureDied}: 2, {"", store.FigureDied}: 3,
		{"b", store.FigureRecovered}: 7, {"", store.FigureRecovered}: 7, {"", store.FigureFenced}: 3,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the flows are %v, want %v", got, want)
	}
	if again := counts.take(); len(again) != 0 {
		t.Errorf("the flows were counted twice: %v", again)
	}
	if next.n != len(all) {
		t.Errorf("%d of %d observations were passed on", next.n, len(all))
	}
}

func TestFlowsOfManyQueues(t *testing.T) {
	t.Parallel()
	counts := newFlowCounts(nil)
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 1000 {
				counts.Observe(settled(fmt.Sprint("q", (i+g)%250), holdfast.EventComplete))
			}
		})
	}
	group.Wait()
	counts.Observe(settled("q7", holdfast.EventComplete))
	taken := counts.take()
	var all, busiest int64
	for _, f := range taken {
		switch f.Queue {
		case store.AllQueues:
			all = f.N
		case "q7":
			busiest = f.N
		}
	}
	if len(taken) != figureQueues+1 || all != 4001 || busiest != 17 {
		t.Errorf("%d figures; %d of all queues; %d of the busiest one", len(taken), all, busiest)
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	queues := []store.Queue{
		{Name: "a", Ready: 3, Running: 1, OldestDue: 2 * time.Second}, {Name: "a", Priority: holdfast.PriorityHigh, Ready: 4, Dead: 5, OldestDue: 3 * time.Second}, {Name: "idle"},
	}
	got := make(map[figureKey]int64)
	for _, f := range levelsOf(queues) {
		got[figureKey{f.Queue, f.Kind}] += f.N
	}
	want := map[figureKey]int64{
		{"", store.FigureReady}: 7, {"", store.FigureRunning}: 1, {"", store.FigureDeadTasks}: 5, {"", store.FigureOldest}: 3000,
		{"a", store.FigureReady}: 7, {"a", store.FigureRunning}: 1, {"a", store.FigureDeadTasks}: 5, {"a", store.FigureOldest}: 3000,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the levels are %v, want %v", got, want)
	}
	if got := levelsOf(nil); len(got) != 4 {
		t.Errorf("the levels without queues are %v", got)
	}
}

// Several processes write all flows, and the levels of each minute once.
func TestFiguresAreWrittenEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeFigures{queues: []store.Queue{{Name: "a", Ready: 2}}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var group sync.WaitGroup
		for range 3 {
			counts := newFlowCounts(nil)
			group.Go(func() { _ = newFigureWriter(s, counts, quiet()).run(ctx) })
			group.Go(func() {
				for range 10*60 + 1 {
					counts.Observe(settled("a", holdfast.EventComplete))
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						return
					}
				}
			})
		}
		began := time.Now()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		cancel()
		group.Wait()
		if got := s.sum()[figureKey{"a", store.FigureSucceeded}]; got != 3*601 {
			t.Errorf("%d successes were written, want %d", got, 3*601)
		}
		levels := 0
		for minute, figures := range s.minutes {
			if n, known := figures[figureKey{"", store.FigureReady}]; known {
				levels++
				if n != 2 || minute.Before(began.Truncate(time.Minute)) {
					t.Errorf("the level of the minute %s is %d", minute, n)
				}
			}
		}
		if levels < 10 || s.reads != levels || s.pruned != levels {
			t.Errorf("%d minutes have levels; the queues were read %d times, and %d times old figures were deleted", levels, s.reads, s.pruned)
		}
	})
}

// A failed write keeps the flows, and a stop writes them. A store that hangs delays a stop for at most the time limit.
func TestFailedFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeFigures{fail: holdfast.ErrUnavailable}
		counts := newFlowCounts(nil)
		stop := background(t.Context(), newFigureWriter(s, counts, quiet()).run)
		for range 5 {
			counts.Observe(settled("a", holdfast.EventComplete))
			time.Sleep(time.Minute)
		}
		if len(s.sum()) > 0 {
			t.Errorf("figures were written: %v", s.sum())
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		if err := stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.sum()[figureKey{"", store.FigureSucceeded}]; got != 5 {
			t.Errorf("%d successes were written, want 5", got)
		}

		s.hang = true
		stop = background(t.Context(), newFigureWriter(s, counts, quiet()).run)
		counts.Observe(settled("a", holdfast.EventComplete))
		time.Sleep(time.Minute)
		began := time.Now()
		limited, cancel := context.WithTimeout(t.Context(), 3*figureLimit)
		defer cancel()
		if err := stop(limited); err != nil || time.Since(began) > 2*figureLimit {
			t.Errorf("the stop took %s: %v", time.Since(began), err)
		}
	})
}

// Serve writes what its worker has done before it returns.
func TestServeWritesFigures(t *testing.T) {
	t.Parallel()
	cfg, err := configs.Load(configs.Options{Env: []string{"DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "tasks.db"), "AMQP_URL=inproc:", "HOLDFAST_LISTEN="}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const tasks = 20
	for range tasks {
		if _, err := b.Producer(nil).Enqueue(t.Context(), holdfast.NewTask{Type: "test", Queue: "mail"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	done := 0
	err = Serve(ctx, ServeOptions{Backend: b, Handlers: func(r *consumer.Registry) {
		r.Add("test", consumer.HandlerFunc(func(context.Context, holdfast.Task) error {
			mu.Lock()
			defer mu.Unlock()
			if done++; done == tasks {
				cancel()
			}
			return nil
		}))
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{store.AllQueues, "mail"} {
		points, err := b.Store.ListFigures(t.Context(), queue, time.Hour, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, p := range points {
			sum += p.Figures[store.FigureSucceeded]
		}
		if sum != tasks {
			t.Errorf("queue %q: the figures show %d successes, want %d: %+v", queue, sum, tasks, points)
		}
	}
}

// The observer costs a few nanoseconds for each attempt, and no allocation.
func BenchmarkFlowCounts(b *testing.B) {
	counts := newFlowCounts(nil)
	names := make([]string, 10)
	for i := range names {
		names[i] = fmt.Sprint("queue-", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			counts.Observe(settled(names[i%len(names)], holdfast.EventComplete))
		}
	})
}

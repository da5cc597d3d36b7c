package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var figureTests = []test{
	{"adds flows, and keeps the first level of a minute", testAddFigures},
	{"keeps the figures of each queue", testFiguresOfQueues},
	{"adds up the figures of many processes", testAddFiguresConcurrently},
	{"knows no figures of a step that no process wrote", testFiguresUnknown},
	{"refuses invalid figures", testInvalidFigures},
	{"stores huge figures and odd names", testOddFigures},
}

// figures is the figures of a point.
type figures = map[store.FigureKind]int64

func (s *suite) addFigures(queue string, added figures) {
	s.Helper()
	var list []store.Figure
	for kind, n := range added {
		list = append(list, store.Figure{Queue: queue, Kind: kind, N: n})
	}
	s.must(s.AddFigures(s.ctx, list))
}

func (s *suite) listFigures(queue string, last, step time.Duration) []store.FigurePoint {
	s.Helper()
	points, err := s.ListFigures(s.ctx, queue, last, step)
	s.must(err)
	return points
}

// inOneMinute calls write in one minute of the store, and returns the beginning of that minute. It waits for the next
// minute if the present one ends soon.
func (s *suite) inOneMinute(write func()) time.Time {
	s.Helper()
	if now := s.now(); now.Truncate(time.Minute).Add(time.Minute).Sub(now) < 10*time.Second {
		s.eventually("the next minute", func() bool { return !s.now().Truncate(time.Minute).Equal(now.Truncate(time.Minute)) })
	}
	minute := s.now().Truncate(time.Minute)
	write()
	if after := s.now(); !after.Truncate(time.Minute).Equal(minute) {
		s.Skip("the machine is too slow: a minute ended during the test")
	}
	return minute
}

func (s *suite) expectPoints(what string, got []store.FigurePoint, want ...store.FigurePoint) {
	s.Helper()
	if !slices.EqualFunc(got, want, func(a, b store.FigurePoint) bool {
		return a.At.Equal(b.At) && a.Minutes == b.Minutes && maps.Equal(a.Figures, b.Figures)
	}) {
		s.Errorf("%s: the points are %+v, want %+v", what, got, want)
	}
}

func testAddFigures(s *suite) {
	s.expectPoints("empty", s.listFigures(store.AllQueues, time.Hour, time.Minute))
	s.must(s.AddFigures(s.ctx, nil))
	minute := s.inOneMinute(func() {
		s.addFigures(store.AllQueues, figures{store.FigureSucceeded: 5, store.FigureReady: 7, store.FigureOldest: 900})
		s.addFigures(store.AllQueues, figures{store.FigureSucceeded: 3, store.FigureReady: 9, store.FigureRunning: 2, store.FigureDied: 1})
		// One call may name a figure twice.
		s.must(s.AddFigures(s.ctx, []store.Figure{
			{Kind: store.FigureFailed, N: 1}, {Kind: store.FigureDeadTasks, N: 4}, {Kind: store.FigureFailed, N: 2}, {Kind: store.FigureDeadTasks, N: 6},
		}))
	})
	want := figures{store.FigureSucceeded: 8, store.FigureReady: 7, store.FigureOldest: 900, store.FigureRunning: 2, store.FigureDied: 1,
		store.FigureFailed: 3, store.FigureDeadTasks: 4}
	for _, step := range []time.Duration{time.Minute, 15 * time.Minute} {
		s.expectPoints(step.String(), s.listFigures(store.AllQueues, time.Hour, step), store.FigurePoint{At: minute.Truncate(step), Minutes: 1, Figures: want})
	}
}

func testFiguresOfQueues(s *suite) {
	minute := s.inOneMinute(func() {
		s.addFigures(store.AllQueues, figures{store.FigureSucceeded: 5, store.FigureReady: 2, store.FigureOldest: 9})
		s.addFigures("a", figures{store.FigureSucceeded: 3, store.FigureReady: 2})
		s.addFigures("b", figures{store.FigureSucceeded: 2})
	})
	for queue, want := range map[string]figures{
		store.AllQueues: {store.FigureSucceeded: 5, store.FigureReady: 2, store.FigureOldest: 9},
		"a":             {store.FigureSucceeded: 3, store.FigureReady: 2, store.FigureOldest: 0},
		"b":             {store.FigureSucceeded: 2, store.FigureReady: 0, store.FigureOldest: 0},
		"c":             {store.FigureReady: 0, store.FigureOldest: 0},
	} {
		s.expectPoints("queue "+queue, s.listFigures(queue, time.Hour, time.Minute), store.FigurePoint{At: minute, Minutes: 1, Figures: want})
	}
}

func testAddFiguresConcurrently(s *suite) {
	const calls, queues = 10, 20
	minute := s.inOneMinute(func() {
		var group sync.WaitGroup
		for call := range calls {
			group.Go(func() {
				var list []store.Figure
				for i := range queues {
					queue := fmt.Sprint("q", (i*7+call)%queues) // each call has another order
					list = append(list, store.Figure{Queue: queue, Kind: store.FigureSucceeded, N: 1}, store.Figure{Queue: queue, Kind: store.FigureReady, N: int64(call)})
				}
				list = append(list, store.Figure{Kind: store.FigureSucceeded, N: queues})
				if err := s.AddFigures(s.ctx, list); err != nil {
					s.Error(err)
				}
			})
		}
		group.Wait()
	})
	s.expectPoints("all", s.listFigures(store.AllQueues, time.Hour, time.Minute), store.FigurePoint{At: minute, Minutes: 1, Figures: figures{store.FigureSucceeded: calls * queues}})
	for _, p := range s.listFigures("q3", time.Hour, time.Minute) {
		if p.Figures[store.FigureSucceeded] != calls || p.Figures[store.FigureReady] >= calls {
			s.Errorf("the figures of a queue are %+v", p.Figures)
		}
	}
}

func testFiguresUnknown(s *suite) {
	s.addFigures("a", figures{store.FigureReady: 2})
	s.expectPoints("a queue alone", s.listFigures("a", time.Hour, time.Minute))
	s.expectPoints("all", s.listFigures(store.AllQueues, time.Hour, time.Minute))
}

func testInvalidFigures(s *suite) {
	many := make([]store.Figure, store.MaxFigures+1)
	for i := range many {
		many[i] = store.Figure{Queue: fmt.Sprint(i), Kind: store.FigureReady}
	}
	for what, list := range map[string][]store.Figure{
		"no kind": {{Queue: "a"}}, "unknown kind": {{Queue: "a", Kind: "other", N: 1}}, "negative": {{Kind: store.FigureReady, N: 1}, {Kind: store.FigureDied, N: -1}}, "too many": many,
	} {
		if err := s.AddFigures(s.ctx, list); !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("%s: AddFigures returned %v", what, err)
		}
	}
	for _, c := range [][2]time.Duration{{0, time.Minute}, {-time.Hour, time.Minute}, {store.KeepFigures + 1, time.Minute}, {time.Hour, 0}, {time.Hour, time.Second}, {time.Hour, -time.Minute}, {time.Hour, 90 * time.Second}} {
		if _, err := s.ListFigures(s.ctx, store.AllQueues, c[0], c[1]); !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("ListFigures of the last %s in steps of %s returned %v", c[0], c[1], err)
		}
	}
	s.expectPoints("after refused calls", s.listFigures(store.AllQueues, store.KeepFigures, time.Minute))
	s.must(s.AddFigures(s.ctx, many[1:]))
}

func testOddFigures(s *suite) {
	const queue = `a'"\; drop table figures --é`
	minute := s.inOneMinute(func() {
		s.addFigures(store.AllQueues, figures{store.FigureReady: 0})
		s.addFigures(queue, figures{store.FigureReady: math.MaxInt64, store.FigureSucceeded: math.MaxInt64})
	})
	s.expectPoints("huge", s.listFigures(queue, time.Hour, time.Minute),
		store.FigurePoint{At: minute, Minutes: 1, Figures: figures{store.FigureReady: math.MaxInt64, store.FigureSucceeded: math.MaxInt64}})
}

// testFiguresLater moves the minutes of figures, because a test cannot wait for a day.
func testFiguresLater(s *suite, shift func(table, column string, d time.Duration)) {
	minute := s.inOneMinute(func() {
		write := func(n int64) {
			s.addFigures(store.AllQueues, figures{store.FigureSucceeded: n, store.FigureReady: 10 * n, store.FigureOldest: n})
			s.addFigures("a", figures{store.FigureSucceeded: n, store.FigureReady: 1})
		}
		write(1)
		shift("figures", "minute", -time.Minute)
		write(2)
		shift("figures", "minute", -15*time.Minute)
		write(3)
	})
	point := func(at time.Time, minutes int, n, ready, oldest int64) store.FigurePoint {
		return store.FigurePoint{At: at, Minutes: minutes, Figures: figures{store.FigureSucceeded: n, store.FigureReady: ready, store.FigureOldest: oldest}}
	}
	s.expectPoints("by minutes", s.listFigures(store.AllQueues, time.Hour, time.Minute),
		point(minute.Add(-16*time.Minute), 1, 1, 10, 1), point(minute.Add(-15*time.Minute), 1, 2, 20, 2), point(minute, 1, 3, 30, 3))
	s.expectPoints("the last minutes", s.listFigures(store.AllQueues, 15*time.Minute, time.Minute),
		point(minute.Add(-15*time.Minute), 1, 2, 20, 2), point(minute, 1, 3, 30, 3))
	s.expectPoints("a short time", s.listFigures(store.AllQueues, time.Nanosecond*1000, time.Minute), point(minute, 1, 3, 30, 3))
	var sum, minutes int64
	steps := s.listFigures(store.AllQueues, time.Hour, 5*time.Minute)
	for _, p := range steps {
		sum, minutes = sum+p.Figures[store.FigureSucceeded], minutes+int64(p.Minutes)
		if p.At.Unix()%300 != 0 || p.Figures[store.FigureReady] != 10*p.Figures[store.FigureOldest] {
			s.Errorf("a step of 5 minutes is %+v", p)
		}
	}
	if sum != 6 || minutes != 3 || len(steps) < 2 || len(steps) > 3 {
		s.Errorf("the steps of 5 minutes are %+v", steps)
	}

	prune := func(what string, limit, want int) {
		s.Helper()
		if n, err := s.PruneFigures(s.ctx, limit); n != want || err != nil {
			s.Errorf("%s: PruneFigures returned %d, %v, want %d", what, n, err, want)
		}
	}
	prune("new", 100, 0)
	shift("figures", "minute", -store.KeepFigures+14*time.Minute)
	prune("limit", 2, 2)
	prune("rest", 100, 8)
	prune("again", 100, 0)
	s.addFigures("zz", figures{store.FigureFenced: 1})
	shift("figures", "minute", -store.KeepFigures)
	prune("all", 100, 6)
}

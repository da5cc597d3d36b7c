package consumer

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/store"
)

// A page that reserved executors starts all its tasks as soon as they are claimed, whatever other pages did meanwhile; no more
// tasks run than there are executors; and at the end nothing is reserved.
func TestReservedExecutorsAreFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newExecutors(rapid.IntRange(1, 6).Draw(t, "executors"))
		if rapid.Bool().Draw(t, "short tasks") {
			w.room.mean = time.Duration(rapid.IntRange(5, 50).Draw(t, "mean")) * time.Millisecond
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if n := w.count(); n > w.room.limit {
					t.Fatalf("%d tasks run on %d executors", n, w.room.limit)
				}
			},
			"gather": func(t *rapid.T) {
				p := &roomPage{rank: rank(rapid.IntRange(0, 1).Draw(t, "rank"))}
				if p.given, _ = w.room.tryReserve(1, 40, p.rank); p.given > 0 {
					w.gathered = append(w.gathered, p)
				}
			},
			"settle": func(t *rapid.T) {
				if p := draw(t, &w.gathered); p != nil {
					most := p.given
					if p.rank == ordinary {
						most += 3 // a message may carry more tickets than there are places
					}
					p.n = rapid.IntRange(1, most).Draw(t, "tasks")
					p.into = w.room.settle(p.given, p.n, p.rank)
					w.settled = append(w.settled, p)
				}
			},
			"claim": func(t *rapid.T) {
				if p := draw(t, &w.settled); p != nil {
					w.claim(t, p, rapid.IntRange(0, p.n).Draw(t, "claimed"))
				}
			},
			"end":       func(t *rapid.T) { w.end(rapid.IntRange(0, 10).Draw(t, "which")) },
			"hand back": func(*rapid.T) { w.handBack(time.Now().Add(time.Hour)) },
		})
		for _, p := range w.gathered {
			w.claim(t, &roomPage{n: 1, into: w.room.settle(p.given, 1, p.rank)}, 0) // in the end nothing was for this worker
		}
		for _, p := range w.settled {
			w.claim(t, p, p.n)
		}
		for w.count() > 0 {
			w.end(0)
		}
		if n := w.room.reserved.Load(); n != 0 || w.room.held != 0 || w.room.gathering != 0 || w.jobs.anyWaits() {
			t.Fatalf("at the end %d executors are reserved, %d places held, %d of them by pages", n, w.room.held, w.room.gathering)
		}
		w.jobs.stop()
	})
}

func draw(t *rapid.T, pages *[]*roomPage) *roomPage {
	if len(*pages) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(*pages)-1).Draw(t, "page")
	p := (*pages)[i]
	*pages = append((*pages)[:i:i], (*pages)[i+1:]...)
	return p
}

type roomPage struct {
	rank     rank
	given, n int
	into     store.Place
}

// executors are a worker's room and jobs, whose handlers end when they are told to.
type executors struct {
	room              *room
	jobs              *jobs
	gathered, settled []*roomPage
	next              int

	mu      sync.Mutex
	running []*job
	release map[*job]chan struct{}
}

func newExecutors(limit int) *executors {
	w := &executors{room: newRoom(limit), release: make(map[*job]chan struct{})}
	w.jobs = newJobs(w.room, w.run, func() {})
	return w
}

func (w *executors) run(j *job) {
	release := make(chan struct{})
	w.mu.Lock()
	w.running = append(w.running, j)
	w.release[j] = release
	w.mu.Unlock()
	<-release
	w.jobs.end(j)
	w.room.judged(1, j.into)
	w.jobs.forget(j.ticket())
}

// count waits until as many tasks run as jobs believes, and returns the number.
func (w *executors) count() int {
	for {
		w.mu.Lock()
		n := len(w.running)
		w.mu.Unlock()
		if n == w.jobs.running() {
			return n
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// claim takes the first n tasks of a page in hand and drops the others.
func (w *executors) claim(t *rapid.T, p *roomPage, n int) {
	before := w.count()
	w.room.leave(p.n-n, p.into)
	list := make([]*job, n)
	for i := range list {
		w.next++
		list[i] = jobFor(w.next)
		list[i].into = p.into
	}
	w.jobs.add(list...)
	if p.into == store.IntoExecutors && w.count() < before+n {
		t.Fatalf("of %d tasks with an executor each %d started", n, w.count()-before)
	}
}

// end lets the handler of one task return, and waits until its executor has taken the next one or is free.
func (w *executors) end(which int) {
	w.mu.Lock()
	if len(w.running) == 0 {
		w.mu.Unlock()
		return
	}
	i := which % len(w.running)
	j := w.running[i]
	w.running = append(w.running[:i:i], w.running[i+1:]...)
	close(w.release[j])
	delete(w.release, j)
	w.mu.Unlock()
	for w.jobs.has(j.ticket()) {
		time.Sleep(10 * time.Microsecond)
	}
}

func (w *executors) handBack(since time.Time) {
	for _, j := range w.jobs.takeWaiting(since) {
		w.room.judged(0, j.into)
		w.jobs.forget(j.ticket())
	}
}

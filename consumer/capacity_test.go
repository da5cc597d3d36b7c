package consumer

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// If a page has reserved executors, all its tasks start as soon as they are claimed, regardless of other pages. Never
// do more tasks run than there are executors. In the end no executor is reserved.
func TestReservedExecutorsAreFree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newExecutors(rapid.IntRange(1, 6).Draw(t, "executors"))
		if rapid.Bool().Draw(t, "short tasks") {
			w.capacity.mean = time.Duration(rapid.IntRange(5, 50).Draw(t, "mean")) * time.Millisecond
		}
		unbuffered := rapid.Bool().Draw(t, "without a buffer")
		w.capacity.unbuffered = func() bool { return unbuffered }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if n := w.count(); n > w.capacity.limit {
					t.Fatalf("%d tasks run on %d executors", n, w.capacity.limit)
				}
			},
			"gather": func(t *rapid.T) {
				p := &capacityPage{rank: rank{holdfast.Priority(rapid.IntRange(-1, 2).Draw(t, "priority")), rapid.Bool().Draw(t, "requeued")}}
				if p.given, _ = w.capacity.tryReserve(1, 40, p.rank, 0); p.given > 0 {
					w.gathered = append(w.gathered, p)
				}
			},
			"settle": func(t *rapid.T) {
				if p := draw(t, &w.gathered); p != nil {
					most := p.given
					if !p.rank.requeued && !unbuffered {
						most += 3 // a message may have more tickets than there is capacity
					}
					p.n = rapid.IntRange(1, most).Draw(t, "tasks")
					if p.into = w.capacity.assign(p.given, p.n, p.rank); unbuffered && p.into != store.IntoExecutors {
						t.Fatal("a worker without a buffer claims into it")
					}
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
			// The only ticket of the page is not claimed.
			w.claim(t, &capacityPage{n: 1, into: w.capacity.assign(p.given, 1, p.rank)}, 0)
		}
		for _, p := range w.settled {
			w.claim(t, p, p.n)
		}
		for w.count() > 0 {
			w.end(0)
		}
		if n := w.capacity.reserved.Load(); n != 0 || w.capacity.used != 0 || w.capacity.gathering != 0 || w.jobs.anyWaiting() {
			t.Fatalf("in the end %d executors are reserved, %d tasks are in progress, %d of them in pages", n, w.capacity.used, w.capacity.gathering)
		}
		w.jobs.stop()
	})
}

func draw[T any](t *rapid.T, list *[]*T) *T {
	if len(*list) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(*list)-1).Draw(t, "index")
	one := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return one
}

type capacityPage struct {
	rank     rank
	given, n int
	into     store.Place
}

// executors are the capacity and the jobs of a worker whose handlers return when end is called.
type executors struct {
	capacity          *capacity
	jobs              *jobs
	gathered, settled []*capacityPage
	next              int

	mu      sync.Mutex
	running []*job
	release map[*job]chan struct{}
}

func newExecutors(limit int) *executors {
	w := &executors{capacity: newCapacity(limit), release: make(map[*job]chan struct{})}
	w.jobs = newJobs(w.capacity, w.run, func() {})
	return w
}

func (w *executors) run(j *job) {
	release := make(chan struct{})
	w.mu.Lock()
	w.running = append(w.running, j)
	w.release[j] = release
	w.mu.Unlock()
	<-release
	w.jobs.finish(j)
	w.capacity.settled(1, j.into)
	w.jobs.forget(j.ticket())
}

// count waits until all started handlers run, and returns their number.
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

// claim adds the first n tasks of a page as claimed jobs, and releases the capacity of the others.
func (w *executors) claim(t *rapid.T, p *capacityPage, n int) {
	before := w.count()
	w.capacity.release(p.n-n, p.into)
	list := make([]*job, n)
	for i := range list {
		w.next++
		list[i] = jobFor(w.next)
		list[i].into = p.into
	}
	w.jobs.add(list...)
	if p.into == store.IntoExecutors && w.count() < before+n {
		t.Fatalf("of %d tasks with a reserved executor, %d started", n, w.count()-before)
	}
}

// end makes the handler of one task return, and waits until its executor has taken the next task or is free.
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
		w.capacity.settled(0, j.into)
		w.jobs.forget(j.ticket())
	}
}

package app

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// figureLimit is the time limit of a write, so a stop waits at most twice as long.
	figureLimit = 2 * time.Second
	// figureQueues is the maximum number of queues for which a write has figures. The sum of all queues is always exact.
	figureQueues = 100
	// A process writes at the same second of each minute. It is drawn with this distance from both ends of the minute, so
	// that a late write is still in its minute.
	figureMargin = 5 * time.Second
)

// flowCounts is an observer that counts the flows of each queue, and passes all observations on.
type flowCounts struct {
	next   holdfast.Observer
	fenced atomic.Int64
	// queues is copied when a queue is added, so a count takes no lock. No queue is ever removed: a process sees few.
	queues atomic.Pointer[map[string]*queueFlows]
	// latest is the queue of the latest count. Most counts are of the same queue as the count before, and need no
	// look-up.
	latest atomic.Pointer[queueFlows]
	mu     sync.Mutex // held while a queue is added
}

// queueFlows are the flows of a queue since the last write.
type queueFlows struct {
	queue                              string
	succeeded, failed, died, recovered atomic.Int64
}

func newFlowCounts(next holdfast.Observer) *flowCounts {
	if next == nil {
		next = holdfast.Discard
	}
	c := &flowCounts{next: next}
	c.queues.Store(&map[string]*queueFlows{})
	return c
}

// Observe implements holdfast.Observer.
func (c *flowCounts) Observe(o holdfast.Observation) {
	n := int64(o.Count)
	switch o.Kind {
	case holdfast.ObservedSettled:
		switch o.Event {
		case holdfast.EventComplete:
			c.of(o.Queue).succeeded.Add(n)
		case holdfast.EventRetry:
			c.of(o.Queue).failed.Add(n)
		case holdfast.EventGiveUp:
			flows := c.of(o.Queue)
			flows.failed.Add(n)
			flows.died.Add(n)
		}
	case holdfast.ObservedRecovered:
		flows := c.of(o.Queue)
		flows.recovered.Add(n)
		if o.Event == holdfast.EventGiveUp {
			flows.died.Add(n)
		}
	case holdfast.ObservedFenced:
		c.fenced.Add(n)
	}
	c.next.Observe(o)
}

func (c *flowCounts) of(queue string) *queueFlows {
	if flows := c.latest.Load(); flows != nil && flows.queue == queue {
		return flows
	}
	if flows, known := (*c.queues.Load())[queue]; known {
		c.latest.Store(flows)
		return flows
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.queues.Load()
	if flows, added := known[queue]; added {
		return flows
	}
	added := maps.Clone(known)
	added[queue] = &queueFlows{queue: queue}
	c.queues.Store(&added)
	return added[queue]
}

// take returns the flows since the last call, with their sums over all queues.
func (c *flowCounts) take() []store.Figure {
	sums := make(map[store.FigureKind]int64)
	if n := c.fenced.Swap(0); n > 0 {
		sums[store.FigureFenced] = n
	}
	byQueue := make(map[string]map[store.FigureKind]int64)
	for queue, flows := range *c.queues.Load() {
		for kind, n := range map[store.FigureKind]int64{
			store.FigureSucceeded: flows.succeeded.Swap(0), store.FigureFailed: flows.failed.Swap(0),
			store.FigureDied: flows.died.Swap(0), store.FigureRecovered: flows.recovered.Swap(0),
		} {
			if n > 0 {
				addTo(byQueue, queue, kind, n)
				sums[kind] += n
			}
		}
	}
	found := figuresOf(store.AllQueues, sums)
	busiest := mostOf(byQueue, func(f map[store.FigureKind]int64) int64 {
		return f[store.FigureSucceeded] + f[store.FigureFailed] + f[store.FigureRecovered]
	})
	for _, queue := range busiest {
		found = append(found, figuresOf(queue, byQueue[queue])...)
	}
	return found
}

func addTo(byQueue map[string]map[store.FigureKind]int64, queue string, kind store.FigureKind, n int64) {
	if byQueue[queue] == nil {
		byQueue[queue] = make(map[store.FigureKind]int64)
	}
	byQueue[queue][kind] += n
}

func figuresOf(queue string, numbers map[store.FigureKind]int64) (list []store.Figure) {
	for kind, n := range numbers {
		list = append(list, store.Figure{Queue: queue, Kind: kind, N: n})
	}
	return list
}

// mostOf returns the figureQueues queues with the highest size.
func mostOf(byQueue map[string]map[store.FigureKind]int64, size func(map[store.FigureKind]int64) int64) []string {
	queues := slices.SortedFunc(maps.Keys(byQueue), func(a, b string) int {
		return cmp.Or(cmp.Compare(size(byQueue[b]), size(byQueue[a])), cmp.Compare(a, b))
	})
	return queues[:min(len(queues), figureQueues)]
}

// figureStore is the part of the store that figures need.
type figureStore interface {
	AddFigures(ctx context.Context, added []store.Figure) error // see package desk
	ListFigures(ctx context.Context, queue string, last, step time.Duration) ([]store.FigurePoint, error)
	PruneFigures(ctx context.Context, limit int) (deleted int, err error)
	Now(ctx context.Context) (time.Time, error)
	Queues(ctx context.Context) ([]store.Queue, error)
}

// figureWriter writes the figures of a process once a minute.
type figureWriter struct {
	store  figureStore
	counts *flowCounts
	log    logrus.FieldLogger
	second time.Duration // of the minute
	unsent []store.Figure
}

func newFigureWriter(s figureStore, counts *flowCounts, log logrus.FieldLogger) *figureWriter {
	second := figureMargin + rand.N(time.Minute-2*figureMargin)
	return &figureWriter{store: s, counts: counts, log: log, second: second}
}

// run writes until ctx ends, and then once more. It returns no error, because a chart stops no service.
//
// All processes write the levels that are missing in the present minute. They write at different seconds, so usually
// the first one reads and writes them, and the others only see that they are there. It does not use Turn of the store,
// which knows intervals and not minutes: some minutes would get two writes, and others none.
func (w *figureWriter) run(ctx context.Context) error {
	defer func() {
		if err := w.writeFlows(ctx); err != nil {
			w.log.WithError(err).Warn("figures of the last minute not written; charts lack them")
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.wait(ctx)):
		}
		err := w.writeFlows(ctx)
		if err == nil {
			err = w.writeLevels(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.log.WithError(err).Warn("figures not written; charts have a gap")
		}
	}
}

// wait returns the time until the next write. The store decides which minute it is.
func (w *figureWriter) wait(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, figureLimit)
	defer cancel()
	now, err := w.store.Now(ctx)
	if err != nil {
		return time.Minute
	}
	next := now.Truncate(time.Minute).Add(w.second)
	if !next.After(now) {
		next = next.Add(time.Minute)
	}
	return next.Sub(now)
}

// writeFlows writes the flows since the last write. A stop does not interrupt it. After an error the flows stay for the
// next write. If the store has committed them although the write failed, a chart shows them twice.
func (w *figureWriter) writeFlows(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), figureLimit)
	defer cancel()
	w.unsent = sumOf(append(w.unsent, w.counts.take()...))
	for len(w.unsent) > 0 {
		part := min(len(w.unsent), store.MaxFigures)
		if err := w.store.AddFigures(ctx, w.unsent[:part]); err != nil {
			return err
		}
		w.unsent = w.unsent[part:]
	}
	return nil
}

// sumOf adds up the figures with the same queue and kind.
func sumOf(list []store.Figure) []store.Figure {
	index := make(map[store.Figure]int, len(list))
	sums := list[:0]
	for _, f := range list {
		key := store.Figure{Queue: f.Queue, Kind: f.Kind}
		i, known := index[key]
		if !known {
			index[key], sums = len(sums), append(sums, f)
			continue
		}
		sums[i].N += f.N
	}
	return sums
}

// writeLevels writes the levels of all queues, unless another process has written those of the present minute. It then
// deletes old figures, at least as many as a minute usually adds.
func (w *figureWriter) writeLevels(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, figureLimit)
	defer cancel()
	now, err := w.store.Now(ctx)
	if err != nil {
		return err
	}
	points, err := w.store.ListFigures(ctx, store.AllQueues, time.Second, time.Minute)
	if err != nil {
		return err
	}
	if n := len(points); n > 0 && points[n-1].At.Equal(now.Truncate(time.Minute)) {
		if _, written := points[n-1].Figures[store.FigureReady]; written {
			return nil
		}
	}
	queues, err := w.store.Queues(ctx)
	if err != nil {
		return err
	}
	if err := w.store.AddFigures(ctx, levelsOf(queues)); err != nil {
		return err
	}
	_, err = w.store.PruneFigures(ctx, store.MaxFigures)
	return err
}

// levelsOf returns the levels of the queues with the most tasks, and those of all queues. It leaves out the zeros of a
// queue, which the levels of all queues imply.
func levelsOf(queues []store.Queue) []store.Figure {
	sums := map[store.FigureKind]int64{store.FigureReady: 0, store.FigureRunning: 0, store.FigureDeadTasks: 0, store.FigureOldest: 0}
	byQueue := make(map[string]map[store.FigureKind]int64)
	for i := range queues {
		q := &queues[i]
		for kind, n := range map[store.FigureKind]int64{store.FigureReady: q.Ready, store.FigureRunning: q.Running, store.FigureDeadTasks: q.Dead} {
			if n > 0 {
				addTo(byQueue, q.Name, kind, n)
				sums[kind] += n
			}
		}
		if oldest := q.OldestDue.Milliseconds(); oldest > 0 {
			addTo(byQueue, q.Name, store.FigureOldest, 0)
			byQueue[q.Name][store.FigureOldest] = max(byQueue[q.Name][store.FigureOldest], oldest)
			sums[store.FigureOldest] = max(sums[store.FigureOldest], oldest)
		}
	}
	found := figuresOf(store.AllQueues, sums)
	largest := mostOf(byQueue, func(f map[store.FigureKind]int64) int64 {
		return f[store.FigureReady] + f[store.FigureRunning] + f[store.FigureDeadTasks]
	})
	for _, queue := range largest {
		found = append(found, figuresOf(queue, byQueue[queue])...)
	}
	return found
}

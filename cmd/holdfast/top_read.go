package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

const (
	topTimeout = 10 * time.Second // of one reading
	topBroker  = leastEvery       // how long a reading waits for the broker
	topGroups  = 100              // groups of dead tasks in one reading
	topTasks   = 200              // tasks in one reading
)

// topView is what a place of the screen shows.
type topView int

// The views. The first ones are those of the keys 1 to 4.
const (
	viewQueues topView = iota
	viewWorkers
	viewGroups
	viewTasks
	viewTask
	viewHelp
)

// topWant is what a place needs from the store.
type topWant struct {
	view  topView
	query string          // of viewTasks: the search
	task  holdfast.TaskID // of viewTask
}

// topReading is one reading of the store.
type topReading struct {
	seq  int // number of the reading
	at   time.Time
	took time.Duration
	err  error // the other fields are then not set

	head   topHead
	sample topSample

	queues  []surface.Queue
	workers []surface.Worker
	groups  []store.DeathGroup
	tasks   []surface.ListedTask
	note    string   // which tasks are missing, or ""
	task    *topTask // nil if the store has no such task
}

// topTask is everything about one task.
type topTask struct {
	surface.TaskDetails
	why    explain.Explanation
	worker string
}

// topHead are the figures above all views.
type topHead struct {
	states map[holdfast.State]int64
	oldest time.Duration
	live   int // workers

	running, executors int
	broker             error // why the broker cannot be used now, or nil
}

// readTop reads the figures above all views, and what a place needs. All reads are bounded: they read counters, indexes
// and one page of rows, or scan for a second at most.
func readTop(ctx context.Context, b *app.Backend, want topWant) topReading {
	began := time.Now()
	var r topReading
	if err := contain.Call(func() error { return r.read(ctx, b, want) }); err != nil {
		if p, panicked := errors.AsType[*holdfast.PanicError](err); panicked {
			b.Log.WithError(err).WithField("stack", p.Stack).Debug("reading failed")
		}
		r = topReading{err: err}
	}
	r.at = time.Now()
	r.took = r.at.Sub(began)
	return r
}

func (r *topReading) read(ctx context.Context, b *app.Backend, want topWant) (err error) {
	groups, err := b.Store.CountGroups(ctx)
	if err != nil {
		return err
	}
	r.sample = sampleOf(time.Now(), groups)
	r.head.states = r.sample.states
	workers, err := b.Store.Workers(ctx, false)
	if err != nil {
		return err
	}
	r.workers = surface.Each(workers, surface.WorkerOf)
	for _, w := range r.workers {
		r.head.live++
		r.head.running += w.Running
		r.head.executors += w.Concurrency
	}
	if r.queues, r.head.broker, err = surface.Queues(ctx, b, topBroker); err != nil {
		return err
	}
	for _, q := range r.queues {
		if q.QueueCounts != nil {
			r.head.oldest = max(r.head.oldest, time.Duration(q.Oldest))
		}
	}
	switch {
	case want.view == viewGroups:
		r.groups, err = b.Store.DeathGroups(ctx, store.DeathFilter{Limit: topGroups})
	case want.view == viewTasks:
		err = r.search(ctx, b, want.query)
	case want.view == viewTask:
		r.task, err = readTopTask(ctx, b, want.task)
	}
	return err
}

// search reads the newest tasks that match a search.
func (r *topReading) search(ctx context.Context, b *app.Backend, query string) error {
	f, err := search.Parse(query, time.Now())
	if err != nil {
		return err
	}
	if f, err = b.KnownFilter(ctx, f); err != nil {
		return err
	}
	f.Limit = topTasks
	page, err := surface.List(ctx, b, f)
	r.tasks = page.Tasks
	switch {
	case page.Next != nil && len(page.Tasks) < topTasks:
		r.note = fmt.Sprintf("the scan stopped after a second, at task %s", page.Next)
	case page.Next != nil:
		r.note = "older ones match too"
	}
	return err
}

// readTopTask reads one task. It returns nil if the store has no such task.
func readTopTask(ctx context.Context, b *app.Backend, id holdfast.TaskID) (*topTask, error) {
	details, err := surface.Task(ctx, b, id)
	if err != nil {
		return nil, unlessNotFound(err)
	}
	why, err := b.Explain(ctx, id)
	if err != nil {
		return nil, unlessNotFound(err)
	}
	worker, err := workerOf(ctx, b, details.Task, details.Attempts)
	return &topTask{details, why, worker}, err
}

// unlessNotFound returns an error that is not an ErrNotFound.
func unlessNotFound(err error) error {
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil
	}
	return err
}

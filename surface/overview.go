package surface

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// BacklogReader is the part of a store from which the backlog is read.
type BacklogReader interface {
	Queues(ctx context.Context) ([]store.Queue, error)
	BlockedByQueue(ctx context.Context) (store.BlockedCounts, error)
	Gates(ctx context.Context) ([]store.Gate, error)
	Workers(ctx context.Context, ended bool) ([]store.Worker, error)
}

// Backlog has the queues with their tasks, without the figures of the broker, and the live workers.
type Backlog struct {
	Queues  []Queue
	Workers []store.Worker
}

// ReadBacklog reads the backlog. The metrics, the HTTP API, the console and the command line all show its numbers.
func ReadBacklog(ctx context.Context, from BacklogReader) (b Backlog, err error) {
	if b.Workers, err = from.Workers(ctx, false); err != nil {
		return b, err
	}
	found, err := from.Queues(ctx)
	if err != nil {
		return b, err
	}
	gates, err := from.Gates(ctx)
	if err != nil {
		return b, err
	}
	blocked, err := from.BlockedByQueue(ctx)
	if err != nil {
		return b, err
	}
	paused := make(map[string]*store.Gate)
	for i, gate := range gates {
		if gate.Kind == store.GatePause && gate.Queue != "" && gate.Subject == (store.Subject{Queue: gate.Queue}) {
			paused[gate.Queue] = &gates[i]
		}
	}
	for _, queue := range found {
		subqueue := queue.Subqueue()
		b.Queues = append(b.Queues, Queue{
			Kind: KindQueue, Queue: queue.Name, Priority: queue.Priority.String(), subqueue: subqueue,
			QueueCounts: &QueueCounts{
				Ready: queue.Ready, Due: queue.Due, Oldest: Duration(queue.OldestDue), Running: queue.Running, Paused: paused[queue.Name],
				Blocked: blocked.Tasks[subqueue], OldestBlocked: Duration(blocked.Oldest[subqueue]), AtLeast: blocked.More,
				Parked: queue.Parked, Dead: queue.Dead, Workers: b.takers(queue.Name),
			},
		})
	}
	return b, nil
}

// takers returns the number of workers that take tasks of a queue.
func (b *Backlog) takers(queue string) (takers int) {
	for _, worker := range b.Workers {
		if !worker.Draining && (len(worker.Queues) == 0 || slices.Contains(worker.Queues, queue)) {
			takers++
		}
	}
	return takers
}

// WorkerCounts are numbers of the workers with a valid lease.
type WorkerCounts struct {
	Live     int `json:"live" doc:"Workers that take tasks."`
	Draining int `json:"draining" doc:"Workers that finish their running tasks, and take no others."`
	Stuck    int `json:"stuck" doc:"Running tasks whose handlers ignore the end of their contexts."`
}

// ExecutorCounts are numbers of the executors of the workers.
type ExecutorCounts struct {
	Total int `json:"total"`
	Busy  int `json:"busy" doc:"Executors that run a task."`
	Free  int `json:"free" doc:"Executors that could run another task. Those of draining workers cannot."`
}

// Count returns the numbers of the workers and their executors, at the latest renewals.
func (b *Backlog) Count() (workers WorkerCounts, executors ExecutorCounts) {
	for _, w := range b.Workers {
		if w.Draining {
			workers.Draining++
		} else {
			workers.Live++
			executors.Free += max(w.Concurrency-w.Running, 0)
		}
		workers.Stuck += len(w.Report.Stuck)
		executors.Busy += w.Running
		executors.Total += w.Concurrency
	}
	return workers, executors
}

// Totals are the numbers of the tasks of a queue with all its priorities, or of all queues.
type Totals struct {
	Tasks         StateCounts `json:"tasks" doc:"Tasks by state. The ready tasks include those that are due, blocked or parked."`
	Due           int64       `json:"due" doc:"Ready tasks whose time has come, and that no gate or limit blocks."`
	Oldest        Duration    `json:"oldest_due" doc:"How long the oldest due task has been due."`
	Blocked       int64       `json:"blocked" doc:"Ready tasks that a closed gate, a limit or a dead ordered task of their key blocks."`
	OldestBlocked Duration    `json:"oldest_blocked" doc:"How long the oldest blocked task has been due."`
	AtLeast       bool        `json:"blocked_at_least,omitempty" doc:"There may be more blocked tasks, because the store counts at most 100,000 in all queues together."`
	Parked        int64       `json:"parked" doc:"Ready tasks that wait for a worker with their type."`
}

// Add adds the numbers of a priority of a queue, without the number of tasks by state.
func (t *Totals) Add(q *QueueCounts) {
	t.Due += q.Due
	t.Oldest = max(t.Oldest, q.Oldest)
	t.Blocked += q.Blocked
	t.OldestBlocked = max(t.OldestBlocked, q.OldestBlocked)
	t.AtLeast = q.AtLeast
	t.Parked += q.Parked
}

// QueueTotals are the numbers of a queue.
type QueueTotals struct {
	Queue string `json:"queue"`
	Totals
	Workers int         `json:"workers" doc:"Live workers that take tasks of the queue."`
	Paused  *store.Gate `json:"paused,omitempty" doc:"Who has paused the queue, and until when."`
}

// Overview has the numbers of the whole system.
type Overview struct {
	At time.Time `json:"at" doc:"The time of the store."`
	Totals
	Workers   WorkerCounts   `json:"workers"`
	Executors ExecutorCounts `json:"executors"`
	Queues    []QueueTotals  `json:"queues" doc:"The queues by name."`

	Backlog Backlog `json:"-"` // what the numbers are from
}

// OverviewReader is the part of a store from which an overview is read.
type OverviewReader interface {
	BacklogReader
	Now(ctx context.Context) (time.Time, error)
	CountGroups(ctx context.Context) ([]store.CountGroup, error)
}

// ReadOverview reads the numbers of the whole system. It does not use the broker. It reads one number after another, so
// they can differ by the tasks that have moved in between.
func ReadOverview(ctx context.Context, from OverviewReader) (o Overview, err error) {
	if o.At, err = from.Now(ctx); err != nil {
		return o, err
	}
	groups, err := from.CountGroups(ctx)
	if err != nil {
		return o, err
	}
	if o.Backlog, err = ReadBacklog(ctx, from); err != nil {
		return o, err
	}
	o.Workers, o.Executors = o.Backlog.Count()
	queues := make(map[string]*QueueTotals)
	queue := func(name string) *QueueTotals {
		if queues[name] == nil {
			queues[name] = &QueueTotals{Queue: name, Workers: o.Backlog.takers(name)}
		}
		return queues[name]
	}
	for _, g := range groups {
		*o.Tasks.Place(g.State) += g.Tasks
		*queue(g.Queue).Tasks.Place(g.State) += g.Tasks
	}
	for _, q := range o.Backlog.Queues {
		o.Add(q.QueueCounts)
		queue(q.Queue).Add(q.QueueCounts)
		queue(q.Queue).Paused = q.Paused
	}
	o.Queues = Each(slices.Collect(maps.Values(queues)), func(q *QueueTotals) QueueTotals { return *q })
	slices.SortFunc(o.Queues, func(a, b QueueTotals) int { return cmp.Compare(a.Queue, b.Queue) })
	return o, nil
}

package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// The kinds of queues in lists. All but the first are AMQP queues.
const (
	KindQueue      = "queue"
	KindRescue     = "rescue"
	KindQuarantine = "quarantine"
	KindUnread     = "unread"
	KindHolding    = "holding"
)

// Queue is one priority of a queue, or an AMQP queue that belongs to no queue.
type Queue struct {
	Kind      string `json:"kind"`
	Queue     string `json:"queue,omitempty"`
	Priority  string `json:"priority,omitempty"`
	AMQPQueue string `json:"amqp_queue"`
	*QueueCounts
	// The figures of the broker; nil if they are unknown or the AMQP queue does not exist.
	Messages  *int `json:"messages"`
	Consumers *int `json:"consumers"`

	subqueue string
	others   []string // other AMQP queues of the queue; Messages includes theirs
}

// QueueCounts are the figures of the store about a queue. An AMQP queue that belongs to no queue has none, so the tag
// required makes them optional in the OpenAPI document.
type QueueCounts struct {
	Ready   int64    `json:"ready" required:"false"`
	Due     int64    `json:"due" required:"false"`
	Oldest  Duration `json:"oldest_due" required:"false"`
	Running int64    `json:"running" required:"false"`
	Blocked int64    `json:"blocked" required:"false" doc:"Ready tasks that a closed gate, a limit or a dead ordered task of their key blocks, without those whose tickets wait in the broker because the queue is paused."`
	// OldestBlocked is how long the oldest of the blocked tasks has been due.
	OldestBlocked Duration `json:"oldest_blocked" required:"false" doc:"How long the oldest blocked task has been due."`
	Parked        int64    `json:"parked" required:"false" doc:"Ready tasks that wait for a worker with their type."`
	Dead          int64    `json:"dead" required:"false" doc:"Tasks that failed for good and wait for a person."`
	// AtLeast means that the store has not counted all blocked tasks.
	AtLeast bool `json:"blocked_at_least,omitempty" doc:"There may be more blocked tasks, because the store counts at most 100,000 in all queues together."`
	Workers int  `json:"workers" required:"false"` // live workers that take tasks of the queue
	// Paused is the gate that a person has closed for the queue; nil if there is none.
	Paused *store.Gate `json:"paused,omitempty"`
}

// Queues reads the queues from the store, and on servers also the AMQP queues that belong to no queue. If the broker
// cannot be used now, the error unknown says why; on servers the figures of the broker are then missing.
func Queues(ctx context.Context, b *app.Backend, limit time.Duration) (rows []Queue, unknown, err error) {
	backlog, err := ReadBacklog(ctx, b.Store)
	if err != nil {
		return nil, nil, err
	}
	if rows, err = backlog.Queues, nameAMQPQueues(ctx, b, backlog.Queues); err != nil {
		return nil, nil, err
	}
	if _, embedded := b.Embedded(); embedded {
		return rows, b.Ping(ctx, limit), nil
	}
	rows = append(rows,
		Queue{Kind: KindRescue, AMQPQueue: b.Topology.Rescue()},
		Queue{Kind: KindQuarantine, AMQPQueue: b.Topology.Quarantine()},
		Queue{Kind: KindUnread, AMQPQueue: b.Topology.Unread()})
	return rows, addDepths(ctx, b, rows, limit), nil
}

// nameAMQPQueues sets the names of the AMQP queues in rows.
func nameAMQPQueues(ctx context.Context, b *app.Backend, rows []Queue) error {
	known, err := b.Store.QueueNames(ctx)
	if err != nil {
		return err
	}
	inTypeQueues := make(map[string][]string) // AMQP queues by subqueue
	for _, name := range known {
		if subqueue, taskType := holdfast.SplitTypeQueue(name); taskType != "" {
			inTypeQueues[subqueue] = append(inTypeQueues[subqueue], b.Topology.Queue(name)...)
		}
	}
	for i := range rows {
		names := append(b.Topology.Queue(rows[i].subqueue), inTypeQueues[rows[i].subqueue]...)
		rows[i].AMQPQueue, rows[i].others = names[0], names[1:]
	}
	return nil
}

// addDepths sets the figures of the broker in rows. It returns an error if the broker does not answer within limit.
func addDepths(ctx context.Context, b *app.Backend, rows []Queue, limit time.Duration) error {
	if err := b.Ping(ctx, limit); err != nil {
		return err
	}
	var names []string
	for _, q := range rows {
		names = append(append(names, q.AMQPQueue), q.others...)
	}
	depths, err := b.Broker.Depths(ctx, names)
	if err != nil {
		return err
	}
	for i, q := range rows {
		depth, ok := depths[q.AMQPQueue]
		if !ok {
			continue
		}
		for _, name := range q.others {
			depth.Ready += depths[name].Ready
		}
		rows[i].Messages, rows[i].Consumers = &depth.Ready, &depth.Consumers
	}
	return nil
}

// KeyQuery is a request for the keys with ordered tasks.
type KeyQuery struct {
	Dead  bool `query:"dead" flag:"-" doc:"Only keys whose active task is dead."`
	Limit int  `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"10000" doc:"At most so many keys."`
}

// WorkerQuery is a request for workers.
type WorkerQuery struct {
	All bool `query:"all" flag:"-" doc:"Include workers that have ended."`
}

// Worker is the JSON form of a worker.
type Worker struct {
	Worker      holdfast.WorkerID `json:"worker"`
	Name        string            `json:"name"`
	Host        string            `json:"host"`
	PID         int               `json:"pid"`
	Version     string            `json:"version"`
	State       store.WorkerState `json:"state"`
	Draining    bool              `json:"draining"`
	Queues      []string          `json:"queues"` // empty means every queue
	Types       []string          `json:"types" doc:"The types with a handler. Empty if the worker has not reported them."`
	Concurrency int               `json:"concurrency"`
	Running     int               `json:"running"`
	Stuck       []StuckTask       `json:"stuck"`     // running tasks whose handlers ignore the end of their contexts
	Abandoned   int               `json:"abandoned"` // handlers that still run after the worker gave their attempts up
	StartedAt   time.Time         `json:"started_at"`
	RenewedAt   time.Time         `json:"renewed_at"`
	LeaseUntil  time.Time         `json:"lease_until"`
	EndedAt     time.Time         `json:"ended_at,omitzero"`
	Taken       int64             `json:"pages_taken"`
	Settled     int64             `json:"pages_settled"`
}

// StuckTask is a task whose handler ignores the end of its context.
type StuckTask struct {
	Task    holdfast.TaskID `json:"task"`
	Attempt int             `json:"attempt"`
	For     Duration        `json:"for"` // at the latest lease renewal
}

// WorkerOf returns the form of a stored worker.
func WorkerOf(w store.Worker) Worker {
	stuck := Each(w.Report.Stuck, func(task store.StuckTask) StuckTask { return StuckTask{task.Task, task.Attempt, Duration(task.For)} })
	return Worker{
		Worker: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, Version: w.Version, State: w.State, Draining: w.Draining,
		Queues: append([]string{}, w.Queues...), Types: append([]string{}, w.Types...), Concurrency: w.Concurrency, Running: w.Running, Stuck: stuck, Abandoned: w.Report.Abandoned,
		StartedAt: w.StartedAt.UTC(), RenewedAt: w.RenewedAt.UTC(), LeaseUntil: w.LeaseUntil.UTC(), EndedAt: w.EndedAt,
		Taken: w.Taken, Settled: w.Settled,
	}
}

// DrainedWorker is a worker after a request to drain it.
type DrainedWorker struct {
	Worker   holdfast.WorkerID `json:"worker"`
	Draining bool              `json:"draining"`
}

// Duration is a time.Duration that is formatted without insignificant digits.
type Duration time.Duration

func (d Duration) String() string {
	whole := time.Duration(d)
	switch {
	case whole >= time.Minute:
		return whole.Round(time.Second).String()
	case whole >= time.Second:
		return whole.Round(100 * time.Millisecond).String()
	}
	return whole.Round(time.Millisecond).String()
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

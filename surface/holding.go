package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
)

// KindWorker is the kind of a live worker in the list of holding queues.
const KindWorker = "worker"

// Holding is a holding queue or a live worker.
type Holding struct {
	Kind string `json:"kind"` // KindHolding or KindWorker
	*HoldingDepth
	*WorkerPages
}

// HoldingDepth is the depth of a holding queue. Messages and Consumers are nil if the broker is unavailable.
type HoldingDepth struct {
	AMQPQueue string `json:"amqp_queue"`
	Messages  *int   `json:"messages"`
	Consumers *int   `json:"consumers"`
}

// WorkerPages are the pages of a live worker.
type WorkerPages struct {
	Worker  holdfast.WorkerID `json:"worker"`
	Name    string            `json:"name"`
	Holding string            `json:"holding_queue"`
	Taken   int64             `json:"pages_taken"`
	Settled int64             `json:"pages_settled"`
	Open    int64             `json:"pages_open"`
	Running int               `json:"running"`
}

// ListHolding reads the holding queues, and the pages of the live workers. The embedded broker has no holding queues
// that another process can read. If the depths of the queues are unknown, the error unknown says why.
func ListHolding(ctx context.Context, b *app.Backend, timeout time.Duration) (queues, workers []Holding, unknown, err error) {
	if _, embedded := b.Embedded(); !embedded {
		rows := Each(b.Topology.HoldingQueueNames(), func(name string) Queue { return Queue{Kind: KindHolding, AMQPQueue: name} })
		unknown = addDepths(ctx, b, rows, timeout)
		for _, q := range rows {
			queues = append(queues, Holding{q.Kind, &HoldingDepth{q.AMQPQueue, q.Messages, q.Consumers}, nil})
		}
	}
	live, err := b.Store.Workers(ctx, false)
	for _, w := range live {
		workers = append(workers, Holding{KindWorker, nil, &WorkerPages{
			w.ID, w.Name, b.Topology.HoldingQueue(w.ID), w.Taken, w.Settled, w.Taken - w.Settled, w.Running,
		}})
	}
	return queues, workers, unknown, err
}

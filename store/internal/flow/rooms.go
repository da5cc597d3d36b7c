package flow

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// roomLook is the time until the next decision if tasks have found no room in their queues.
const roomLook = 100 * time.Millisecond

// permitRates has the tasks with permits, by queue. Without the rates at which they end, a queue would have room for only
// as many tasks as executors, which short tasks leave idle until the next decision.
type permitRates struct {
	mu     sync.Mutex
	queues map[string]*slots.Permits
}

// rooms are the numbers of tasks that may still get permits in one decision. A queue has as much room as its workers
// have free executors; see slots.Permits. A topic has at most its part of the slots, as without permits.
type rooms struct {
	executors func(queue string) int
	queues    map[string]*queueRoom
	total     int  // the sum over all queues
	soon      bool // executors of a queue may be idle, so the next decision must follow soon
}

// queueRoom is the room in a queue.
type queueRoom struct {
	left    int
	topics  map[string]*int
	slots   slots.Queue
	waiting []string // the first two topics of each subqueue in which tasks wait for slots
}

// readRooms returns the rooms for a decision.
func (g *Flow) readRooms(ctx context.Context, tx transact.Reader) (*rooms, error) {
	executors, err := executorsOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		Queue, Topic   string
		Permits, Slots int
	}
	if err := tx.Read(ctx, "permits_held", &rows); err != nil {
		return nil, err
	}
	permits := make(map[string]map[string]int) // by queue and topic
	r := &rooms{executors: executors, queues: make(map[string]*queueRoom)}
	for _, row := range rows {
		name, _ := holdfast.SplitSubqueue(row.Queue)
		if permits[name] == nil {
			permits[name] = make(map[string]int)
		}
		permits[name][row.Topic] += row.Permits
		r.queue(name).slots.Held[row.Topic] += row.Slots
	}
	g.permitted.mu.Lock()
	defer g.permitted.mu.Unlock()
	now := time.Now()
	for name, q := range r.queues {
		held := g.permitted.queues[name]
		if held == nil {
			held = new(slots.Permits)
			g.permitted.queues[name] = held
		}
		held.Observe(now, permits[name])
		left, soon := held.Room(q.slots.Executors)
		q.slots.Rates, q.left = &held.Rates, left
		r.total, r.soon = r.total+left, r.soon || soon
	}
	return r, nil
}

// queue returns the room in a queue. It creates the data if there is none.
func (r *rooms) queue(name string) *queueRoom {
	if r.queues[name] == nil {
		n := r.executors(name)
		r.queues[name] = &queueRoom{left: n, topics: make(map[string]*int), slots: slots.Queue{Executors: n, Rates: new(slots.Rates), Held: make(map[string]int)}}
	}
	return r.queues[name]
}

// readTopics reads which topics wait for slots. It is needed only if a candidate has a topic.
func (r *rooms) readTopics(ctx context.Context, tx transact.Reader) error {
	var rows []struct{ Queue, Topic string }
	if err := tx.Read(ctx, "topics_first", &rows); err != nil {
		return err
	}
	for _, row := range rows {
		name, _ := holdfast.SplitSubqueue(row.Queue)
		q := r.queue(name)
		q.waiting = append(q.waiting, row.Topic)
	}
	return nil
}

// of returns the room of a task.
func (r *rooms) of(subqueue, topic string) []*int {
	name, _ := holdfast.SplitSubqueue(subqueue)
	q := r.queue(name)
	if topic == "" {
		return []*int{&q.left}
	}
	if q.topics[topic] == nil {
		q.slots.Several = false
		for _, other := range q.waiting {
			q.slots.Several = q.slots.Several || other != topic
		}
		q.topics[topic] = new(q.slots.FreeFor(topic))
	}
	return []*int{&q.left, q.topics[topic]}
}

// given records that tasks have got permits. The next decision notices which of them have ended.
func (r *permitRates) given(tasks []taskRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, task := range tasks {
		name, _ := holdfast.SplitSubqueue(task.queue)
		if q := r.queues[name]; q != nil {
			q.Give(task.topic)
		}
	}
}

// Package producer accepts tasks: it stores them, and publishes their tickets with
// the broker's confirms.
//
// When a call returns without error, its tasks are committed and will reach a final state whatever happens next. Their
// tickets are published while the caller goes on, and that is an attempt only: each insert leaves a receipt in the
// store's outbox, which is deleted after the confirm and otherwise published by any janitor, after OutboxGrace. A queue
// that is down or takes no messages delays its own tasks, but neither callers nor other queues. A queue that takes
// tickets more slowly than callers store tasks slows down these callers. Close waits for what is on its way; a process
// that ends without it leaves that to a janitor.
//
// Concurrent Enqueue calls share one insert, and what is published together shares
// messages. The package never runs a task, and never reads one.
package producer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
)

// Options configures a Producer. Store, Broker and Topology are required.
type Options struct {
	Store    store.Inserter
	Broker   broker.Publisher
	Topology broker.Topology

	// Settings give a task its lane and max attempts where it names none.
	Settings holdfast.Settings
	// MaxPayload is the limit of one payload in bytes; 0 means holdfast.DefaultMaxPayload.
	MaxPayload int
	// Check, if set, returns what is wrong with a payload of a type. The caller gets that error.
	Check map[string]func(payload []byte) error
	// ConfirmTimeout is how long the broker may take to confirm, until tickets are left to the outbox; 0 means 5 s.
	ConfirmTimeout time.Duration
	// OutboxGrace is how long janitors leave a receipt to this producer; 0 means 2 s.
	OutboxGrace time.Duration
	Log         logrus.FieldLogger // nil discards
	Observer    holdfast.Observer  // nil discards
}

const (
	batchSize     = 1000    // tasks of one transaction
	batchBytes    = 8 << 20 // of their payloads, about
	inserters     = 2       // goroutines that store the tasks of a line of Enqueue calls, at most
	insertTimeout = 30 * time.Second
)

// Producer accepts tasks. It is safe for concurrent use.
type Producer struct {
	o         Options
	publisher *publisher

	mu           sync.Mutex
	plain, keyed line // calls without and with a unique key
	closed       bool
	calls        sync.WaitGroup // inserters, and calls that need none

	answered sync.Pool // of *call; their channels may not leave a test's bubble, so each producer has its own
}

// complete fills in the defaults.
func (o *Options) complete() error {
	switch {
	case o.Store == nil || o.Broker == nil || o.Topology.Prefix == "" || o.Topology.Incarnation == "":
		return fmt.Errorf("%w: a producer needs a store, a broker and a topology with its incarnation", holdfast.ErrInvalid)
	case o.MaxPayload < 0:
		return fmt.Errorf("%w: the limit of payloads %d is negative", holdfast.ErrInvalid, o.MaxPayload)
	case o.ConfirmTimeout < 0 || o.OutboxGrace < 0:
		return fmt.Errorf("%w: a producer's durations cannot be negative", holdfast.ErrInvalid)
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = holdfast.DefaultMaxPayload
	}
	if o.ConfirmTimeout == 0 {
		o.ConfirmTimeout = 5 * time.Second
	}
	if o.OutboxGrace == 0 {
		o.OutboxGrace = 2 * time.Second
	}
	if o.Observer == nil {
		o.Observer = holdfast.Discard
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// New checks the options. It starts nothing; goroutines live while there are tasks to store or tickets to publish, and Close
// waits for them.
func New(o Options) (*Producer, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	return &Producer{o: o, publisher: &publisher{
		broker: o.Broker, topology: o.Topology, store: o.Store, limit: o.ConfirmTimeout, observer: o.Observer, log: o.Log,
		queues: make(map[string]*outgoing), closing: make(chan struct{}),
	}}, nil
}

// ErrClosed is returned by calls that come after Close.
var ErrClosed = errors.New("the producer is closed")

// Result says where a task is.
type Result struct {
	ID holdfast.TaskID `json:"id"`
	// Duplicate means that another task holds the unique key: ID is that one's, and
	// nothing was stored. It is no error.
	Duplicate bool `json:"duplicate,omitempty"`
}

// TaskError says which task of a call is wrong.
type TaskError struct {
	Index int // in the call's tasks, from 0
	Err   error
}

func (e *TaskError) Error() string { return fmt.Sprintf("task %d: %v", e.Index+1, e.Err) }

func (e *TaskError) Unwrap() error { return e.Err }

// EnqueueTx stores the tasks inside the caller's transaction. They exist exactly
// if it commits; a janitor publishes their tickets as soon as it has. tx is a *sql.Tx, *sqlx.Tx
// or anything with their two methods, on the database of the producer's store; a
// pool such as *sql.DB is an ErrInvalid.
// After an error the caller must roll back.
func (p *Producer) EnqueueTx(ctx context.Context, tx store.Tx, tasks ...holdfast.NewTask) ([]Result, error) {
	if _, pool := tx.(interface{ Stats() sql.DBStats }); pool {
		return nil, fmt.Errorf("enqueue in a transaction: %w: %T is not a transaction; pass the *sql.Tx or *sqlx.Tx that its Begin returns, or call Enqueue",
			holdfast.ErrInvalid, tx)
	}
	complete, err := p.completeAll(tasks)
	if err != nil {
		return nil, err
	}
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	results, order := make([]Result, len(tasks)), byKeys(complete)
	sorted := make([]holdfast.NewTask, len(tasks))
	for n, i := range order {
		sorted[n] = complete[i]
	}
	for len(sorted) > 0 { // in parts, so that no outbox entry has more tickets than one publish can take
		n := fitting(sorted, payloadOf)
		inserted, err := p.o.Store.InsertTx(ctx, tx, sorted[:n], 0)
		if err != nil {
			return nil, fmt.Errorf("store tasks: %w", err)
		}
		for k, result := range p.account(inserted) {
			results[order[k]] = result
		}
		sorted, order = sorted[n:], order[n:]
	}
	return results, nil
}

// byKeys returns the indexes of the tasks in the order of their unique keys, those without a key first. The order is the
// same in all calls and over all parts of a call, so that two transactions with the same keys do not deadlock.
func byKeys(tasks []holdfast.NewTask) []int {
	order := make([]int, len(tasks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tasks[a].Unique, tasks[b].Unique) })
	return order
}

// Close makes later calls fail and returns when those under way have ended, and the tickets of what was stored are
// confirmed or left to the outbox: after ConfirmTimeout, if the broker takes none.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.calls.Wait()
	p.publisher.close()
	logs.Flush(p.o.Log)
	return nil
}

// enter begins a call that Close waits for; leave ends it.
func (p *Producer) enter() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.calls.Add(1)
	return p.calls.Done, nil
}

// fitting is how many of the first items go into one transaction: at most batchSize,
// and of large payloads only as many as make about batchBytes.
func fitting[T any](items []T, size func(T) int) int {
	n, bytes := 0, 0
	for n < min(batchSize, len(items)) {
		if bytes += size(items[n]); bytes > batchBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

func payloadOf(task holdfast.NewTask) int { return len(task.Payload) }

// completeAll completes the tasks. Its error is a *TaskError.
func (p *Producer) completeAll(tasks []holdfast.NewTask) ([]holdfast.NewTask, error) {
	complete := make([]holdfast.NewTask, len(tasks))
	for i, task := range tasks {
		var err error
		if complete[i], err = p.complete(task); err != nil {
			return nil, &TaskError{i, err}
		}
	}
	return complete, nil
}

// complete validates a task and fills in what its type's settings say.
func (p *Producer) complete(task holdfast.NewTask) (holdfast.NewTask, error) {
	if err := task.Validate(p.o.MaxPayload); err != nil {
		return task, err
	}
	if check := p.o.Check[task.Type]; check != nil {
		if err := check(task.Payload); err != nil {
			return task, err
		}
	}
	settings := p.o.Settings.For(task.Type)
	if task.Lane == "" {
		task.Lane = settings.Lane
	}
	if task.MaxAttempts == 0 {
		task.MaxAttempts = settings.Policy.MaxAttempts
	}
	if len(task.Payload) == 0 {
		task.Payload = []byte("null")
	}
	return task, nil
}

func (p *Producer) account(inserted store.Inserted) []Result {
	results := make([]Result, len(inserted.Tasks))
	duplicates := 0
	for i, task := range inserted.Tasks {
		results[i] = Result(task)
		if task.Duplicate {
			duplicates++
		}
	}
	if fresh := len(results) - duplicates; fresh > 0 {
		p.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedEnqueued, Count: fresh})
	}
	if duplicates > 0 {
		p.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedDuplicate, Count: duplicates})
	}
	return results
}

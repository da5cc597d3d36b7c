// Package producer stores tasks and publishes their tickets.
//
// When a call returns without an error, its tasks are committed, and they reach a final state even after crashes. The
// producer publishes their tickets after the call has returned. If that fails, no task is lost, because each insert
// also stores outbox entries for its tickets. The producer deletes an outbox entry when the broker has confirmed its
// tickets. After OutboxGrace, a janitor publishes the tickets of the remaining entries. EnqueueTx returns before the
// commit, so the producer then queries the store for the commit.
//
// If a queue is down or accepts no messages, its tasks are delayed, but no call waits and no other queue is affected.
// If a queue accepts tickets, but more slowly than callers store tasks, the callers wait.
//
// Concurrent Enqueue calls share an insert: their tasks form an insert group. The tickets of several inserts share
// messages: they form a publish group. The package never runs a task.
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

// OutboxGrace is the value of Options.OutboxGrace, unless a test sets another.
const OutboxGrace = 2 * time.Second

// Options configures a Producer. Store, Broker and Topology are required.
type Options struct {
	Store    store.Inserter
	Broker   broker.Publisher
	Topology broker.Topology

	// Settings supply the queue and the maximum attempts of a task that has none.
	Settings holdfast.SettingsSource // nil means the zero value of holdfast.Settings
	// MaxPayload is the maximum size of a payload in bytes; 0 means holdfast.DefaultMaxPayload.
	MaxPayload int
	// Check has the check functions of types that have one. If a check returns an error, the caller gets it, and the
	// task is not stored.
	Check map[string]func(payload []byte) error
	// ConfirmTimeout is how long the producer waits for the broker's confirms; 0 means 5 s. Tickets without a confirm
	// stay in the outbox.
	ConfirmTimeout time.Duration
	// OutboxGrace is the age of an outbox entry from which janitors publish it; 0 means OutboxGrace. For EnqueueTx it
	// is at most a second, from the begin of the transaction.
	OutboxGrace time.Duration
	// OneWriter says that the store commits one transaction at a time, as a file does. Then one goroutine stores the tasks
	// of concurrent calls, and all calls that wait share its next transaction. Otherwise a second one may help.
	OneWriter bool
	// OnTopic, if set, is called after tasks with topics are stored. They get tickets when a janitor gives them slots.
	OnTopic  func()
	Log      logrus.FieldLogger // nil discards
	Observer holdfast.Observer  // nil discards
	Tracer   holdfast.Tracer    // nil means no tracing
}

const (
	maxInsertTasks = 1000    // tasks of one transaction
	maxInsertBytes = 8 << 20 // of the payloads of one transaction; a single larger payload is allowed
	inserters      = 2       // maximum number of goroutines that store the tasks of a backlog; see Options.OneWriter
	insertTimeout  = 30 * time.Second
)

// Producer accepts tasks. It is safe for concurrent use.
type Producer struct {
	o         Options
	publisher *publisher
	commits   *commitWatch
	heldLimit time.Duration // initially the constant heldLimit
	inserters int           // maximum number of inserters of a backlog

	mu                    sync.Mutex
	plain, keyed, ordered callBacklog // calls without a key, with a unique key, and with an ordered task
	closed                bool
	calls                 sync.WaitGroup // inserters, and calls of EnqueueMany and EnqueueTx

	callPool sync.Pool // of *call; one pool for each producer, because channels must not leave the bubble of a synctest
}

// complete fills in the defaults.
func (o *Options) complete() error {
	switch {
	case o.Store == nil || o.Broker == nil || o.Topology.Prefix == "" || o.Topology.Incarnation == "":
		return fmt.Errorf("%w: a store, a broker and a topology with its incarnation are required", holdfast.ErrInvalid)
	case o.MaxPayload < 0:
		return fmt.Errorf("%w: maximum payload %d is negative", holdfast.ErrInvalid, o.MaxPayload)
	case o.ConfirmTimeout < 0 || o.OutboxGrace < 0:
		return fmt.Errorf("%w: confirm timeout or outbox grace is negative", holdfast.ErrInvalid)
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = holdfast.DefaultMaxPayload
	}
	if o.ConfirmTimeout == 0 {
		o.ConfirmTimeout = 5 * time.Second
	}
	if o.OutboxGrace == 0 {
		o.OutboxGrace = OutboxGrace
	}
	if o.Observer == nil {
		o.Observer = holdfast.Discard
	}
	if o.Settings == nil {
		o.Settings = holdfast.Settings{}
	}
	if o.OnTopic == nil {
		o.OnTopic = func() {}
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// New returns a Producer, or an ErrInvalid if the options are invalid. It starts no goroutine. Calls start goroutines
// while there are tasks to store or tickets to publish, and Close waits for these.
func New(o Options) (*Producer, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p := &publisher{
		broker: o.Broker, topology: o.Topology, store: o.Store, limit: o.ConfirmTimeout, observer: o.Observer, log: o.Log,
		queues: make(map[string]*outgoingQueue), closing: make(chan struct{}),
	}
	most := inserters
	if o.OneWriter {
		most = 1
	}
	return &Producer{o: o, publisher: p, heldLimit: heldLimit, inserters: most, keyed: callBacklog{locks: true}, ordered: callBacklog{locks: true}, commits: &commitWatch{
		store: o.Store, publisher: p, limit: min(o.OutboxGrace, txGrace), log: o.Log,
		sooner: make(chan struct{}, 1), closing: make(chan struct{}),
	}}, nil
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("the producer is closed")

// Result is the result of storing a task.
type Result struct {
	ID holdfast.TaskID `json:"id"`
	// Duplicate means that another task already has the unique key. Then ID is the id of that task, and nothing was
	// stored. A duplicate is not an error.
	Duplicate bool `json:"duplicate,omitempty"`
	// State is the state of that other task when the store looked for it. It is empty if Duplicate is not set, or if that
	// task was deleted and the store keeps its unique key; see holdfast.NewTask.
	State holdfast.State `json:"state,omitempty"`
}

// TaskError is the error of one task of a call.
type TaskError struct {
	Index int // index in the call's tasks, from 0
	Err   error
}

func (e *TaskError) Error() string { return fmt.Sprintf("task %d: %v", e.Index+1, e.Err) }

func (e *TaskError) Unwrap() error { return e.Err }

// EnqueueTx stores the tasks in the caller's transaction. They exist if and only if it commits. tx is a *sql.Tx, a
// *sqlx.Tx, or another type with the methods of store.Tx, on the database of the producer's store. A pool such as
// *sql.DB is an ErrInvalid.
//
// The producer queries for the commit on a connection of its store, with growing pauses. If the transaction commits
// within a second of its begin, the producer publishes the tickets. After a later commit, or if the producer is closed
// or cannot reach the store, a janitor publishes them.
//
// If a task is invalid, the error is a *TaskError, and nothing was stored. After any error the caller must roll back.
func (p *Producer) EnqueueTx(ctx context.Context, tx store.Tx, tasks ...holdfast.NewTask) ([]Result, error) {
	if _, pool := tx.(interface{ Stats() sql.DBStats }); pool {
		return nil, fmt.Errorf("enqueue in a transaction: %w: %T is not a transaction; pass the *sql.Tx or *sqlx.Tx that its Begin returns, or call Enqueue",
			holdfast.ErrInvalid, tx)
	}
	complete, err := p.completeAll(tasks)
	if err != nil {
		return nil, err
	}
	if p.o.Tracer == nil {
		return p.enqueueTx(ctx, tx, complete)
	}
	end := p.o.Tracer.Enqueue(ctx, complete)
	results, err := p.enqueueTx(ctx, tx, complete)
	end(idOf(results), err)
	return results, err
}

// enqueueTx is EnqueueTx for completed tasks.
func (p *Producer) enqueueTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask) ([]Result, error) {
	exit, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer exit()
	results, order := make([]Result, len(tasks)), keyOrder(tasks)
	sorted := make([]holdfast.NewTask, len(tasks))
	for n, i := range order {
		sorted[n] = tasks[i]
	}
	for len(sorted) > 0 { // in parts, so that each outbox entry fits into a publish group
		n := fitting(sorted, payloadOf)
		grace := p.commits.grace()
		inserted, err := p.o.Store.InsertTx(ctx, tx, sorted[:n], grace)
		if err != nil {
			return nil, fmt.Errorf("store tasks: %w", err)
		}
		if grace > 0 {
			p.commits.add(ctx, inserted.Entries)
		}
		for k, result := range p.resultsOf(inserted) {
			results[order[k]] = result
		}
		sorted, order = sorted[n:], order[n:]
	}
	return results, nil
}

// idOf returns the id of the result if there is one, and otherwise 0.
func idOf(results []Result) holdfast.TaskID {
	if len(results) != 1 {
		return 0
	}
	return results[0].ID
}

// keyOrder returns the indexes of the tasks in the order of their unique keys. Tasks without a key come first, and
// ordered tasks last, by key. All calls and all parts of a call use the same order, so that two transactions with the
// same keys do not deadlock.
func keyOrder(tasks []holdfast.NewTask) []int {
	order := make([]int, len(tasks))
	for i := range order {
		order[i] = i
	}
	key := func(i int) (ordered int, key string) {
		if tasks[i].Ordered { // the tasks of a key keep their order
			return 1, tasks[i].Key
		}
		return 0, tasks[i].Unique
	}
	slices.SortStableFunc(order, func(a, b int) int {
		orderedA, keyA := key(a)
		orderedB, keyB := key(b)
		return cmp.Or(cmp.Compare(orderedA, orderedB), cmp.Compare(keyA, keyB))
	})
	return order
}

// Close makes later calls return ErrClosed. It waits for the calls in progress, and until the tickets of stored tasks
// are confirmed or left to the outbox. If the broker confirms nothing, that takes ConfirmTimeout. Close does not wait
// for open transactions of EnqueueTx, whose tickets janitors publish. Close may be called more than once. If a process
// ends without Close, janitors publish its tickets.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.calls.Wait()
	p.commits.close()
	p.publisher.close()
	logs.Flush(p.o.Log)
	return nil
}

// enter begins a call for which Close waits. The caller ends it with exit.
func (p *Producer) enter() (exit func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.calls.Add(1)
	return p.calls.Done, nil
}

// fitting returns how many of the first items fit into one transaction: at most maxInsertTasks items of at most
// maxInsertBytes in total, but at least one item.
func fitting[T any](items []T, size func(T) int) int {
	n, bytes := 0, 0
	for n < min(maxInsertTasks, len(items)) {
		if bytes += size(items[n]); bytes > maxInsertBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

func payloadOf(task holdfast.NewTask) int { return len(task.Payload) }

// completeAll returns the completed tasks. Its error is a *TaskError.
func (p *Producer) completeAll(tasks []holdfast.NewTask) ([]holdfast.NewTask, error) {
	complete := slices.Clone(tasks)
	var settings *holdfast.TypeSettings // of the latest type, because most calls have tasks of one type
	for i := range complete {
		task := &complete[i]
		if i == 0 || task.Type != complete[i-1].Type {
			settings = p.o.Settings.For(task.Type)
		}
		if err := task.Complete(settings, p.o.MaxPayload, p.o.Check[task.Type]); err != nil {
			return nil, &TaskError{i, err}
		}
	}
	return complete, nil
}

// resultsOf returns the results of inserted tasks, and observes them.
func (p *Producer) resultsOf(inserted store.Inserted) []Result {
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

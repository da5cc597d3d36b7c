package memory

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
)

// Store is the database that all clients share. New creates one.
//
// The methods of Store go through no gate. The caller must not call them during an effect. Clients without a gate
// exclude only each other.
type Store struct {
	clock         func() time.Time
	mu            sync.Mutex  // serializes clients without a gate
	busy          atomic.Bool // an effect is in progress
	db            database
	started       time.Time       // when the server was started
	epoch         int             // a new value ends all open transactions
	history       int             // incremented when commits are lost
	presenceLocks []*presenceLock // in the order of the requests
	// renewers has the sessions that carry renewals, each for one worker.
	renewers []*renewer
	claims   []*claimStatement // in progress; the slice is replaced, never changed
	observe  func(Change)
	given    func(Given)
	held     func(key string) bool // see HoldKeys
	// Recount has found a difference.
	miscounted bool

	before    Task     // the state of a task before the change in progress; set only for observe
	operation store.ID // the operation whose step is in progress, or 0
	picked    []int    // reused by the effects that choose rows
}

// New returns an empty, migrated database of a server that has just started. clock is the clock of the database.
func New(clock func() time.Time) *Store {
	s := &Store{clock: clock}
	s.started = s.now()
	s.db.addQueues([]string{holdfast.DefaultQueue})
	return s
}

func (s *Store) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// Client returns a new client, for one process. If gate is nil, every effect takes place at once; the clients without a
// gate exclude each other.
func (s *Store) Client(gate Gate) *Client {
	if gate == nil {
		gate = s.immediateGate
	}
	return &Client{store: s, gate: gate, permitted: make(map[string]*slots.Permits)}
}

// Change is one change of one task. An observer must not keep the Change or anything that it points to.
type Change struct {
	Op     string               // Op of the step that makes the change
	Before *Task                // nil if the task is new
	After  *Task                // nil if the task was deleted
	Move   *holdfast.Transition // if Apply made the change: the accepted transition
	// Operation is the operation that makes the change, or 0.
	Operation store.ID
}

// Observe makes the store call f for every later change of a task, inside the effect that makes the change. There is
// one observer; nil removes it. Restore calls no observer.
func (s *Store) Observe(f func(Change)) { s.observe = f }

// changing is called before each change of a task, and changed after it.
func (s *Store) changing(t *Task) {
	for _, claim := range s.claims {
		claim.changed = append(claim.changed, t.ID)
	}
	if s.observe != nil {
		s.before = *t
	}
}

func (s *Store) changed(op string, t *Task, move *holdfast.Transition) {
	if s.observe != nil {
		s.observe(Change{Op: op, Before: &s.before, After: t, Move: move, Operation: s.operation})
	}
}

// Restarted simulates a restart of the server with all its data. Open transactions and sessions end, and the settle
// time of Fence starts again. A simulator that sets the clock may also call Restarted: store/sqlite treats a leap of
// the clock as a restart, store/postgres does not.
func (s *Store) Restarted() {
	s.epoch++
	s.started = s.now()
	s.Stopped()
}

// The following methods return the rows themselves, not copies, in the order of their ids or names. They are for
// checking invariants. The caller must not change the rows, or keep them beyond the next effect.

// Tasks returns every task.
func (s *Store) Tasks() []Task { return s.db.tasks }

// Task returns one task, or nil if there is none.
func (s *Store) Task(id holdfast.TaskID) *Task { return s.db.task(id) }

// Selects reports whether a filter selects a task.
func (s *Store) Selects(f store.Filter, t *Task) bool {
	f = normalize(f)
	return s.matches(&f, t)
}

// Pauses returns every pause.
func (s *Store) Pauses() []store.Gate { return s.gatesOf(store.GatePause) }

// Breakers returns every breaker.
func (s *Store) Breakers() []store.Gate { return s.gatesOf(store.GateBreaker) }

func (s *Store) gatesOf(kind store.GateKind) []store.Gate {
	return slices.DeleteFunc(closedGates(s.db.gates, s.now()), func(g store.Gate) bool { return g.Kind != kind })
}

// Limits returns every limit.
func (s *Store) Limits() []store.Limit {
	var limits []store.Limit
	for i := range s.db.gates {
		if g := &s.db.gates[i]; g.Kind == store.GateLimit && !g.lifted {
			limits = append(limits, g.limit())
		}
	}
	return limits
}

// Permits returns every permit.
func (s *Store) Permits() []Permit { return s.db.permits }

// Operations returns every operation.
func (s *Store) Operations() []Operation { return s.db.operations }

// AuditEntries returns every entry of the audit log.
func (s *Store) AuditEntries() []store.AuditEntry { return s.db.audit }

// OutboxEntries returns every outbox entry.
func (s *Store) OutboxEntries() []OutboxEntry { return s.db.entries }

// Workers returns every worker.
func (s *Store) Workers() []Worker { return s.db.workers }

// Worker returns one worker, or nil if there is none.
func (s *Store) Worker(id holdfast.WorkerID) *Worker { return s.db.worker(id) }

// Queues returns every known queue.
func (s *Store) Queues() []Queue { return s.db.queues }

// Cancellations returns the cancellations that may not have reached their workers yet.
func (s *Store) Cancellations() []Cancellation { return s.db.cancellations }

package simstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
)

// Store is the database that all clients share. Make one with New.
//
// Its own methods go through no gate. They must not be called while an effect takes place; clients without a gate
// keep only each other out.
type Store struct {
	clock   func() time.Time
	mu      sync.Mutex  // for clients without a gate
	busy    atomic.Bool // an effect takes place
	db      database
	started time.Time // when the server was
	epoch   int       // ends open transactions by growing
	history int       // grows when commits are lost
	signs   []*sign   // in the order in which they came
	// renewers are the sessions that carry the renewals of one run each.
	renewers []*renewer
	observe  func(Change)

	before Task  // what a task was before the change that is under way; only for observe
	picked []int // room for choosing rows, kept from one effect to the next
}

// New returns an empty, migrated database with a server that has started just now. clock is the database's own.
func New(clock func() time.Time) *Store {
	s := &Store{clock: clock}
	s.started = s.now()
	s.db.migrate(s.started)
	return s
}

func (s *Store) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// Client returns a process's connections to the database. A nil gate lets every effect take place at once, one
// at a time.
func (s *Store) Client(gate Gate) *Client {
	if gate == nil {
		gate = s.open
	}
	return &Client{store: s, gate: gate}
}

// Change is one change of one task, as an observer is told of it. It must keep neither the Change nor what
// it points to.
type Change struct {
	Op     string               // of the step that makes it
	Before *Task                // nil if it is new
	After  *Task                // nil if it was deleted
	Move   *holdfast.Transition // with Apply: the move that was accepted
}

// Observe has f told of every change of a task from now on, inside the effect that makes it. There is one
// observer; nil removes it. Restore does not tell.
func (s *Store) Observe(f func(Change)) { s.observe = f }

// changing must come before a task is changed, and changed after it.
func (s *Store) changing(t *Task) {
	if s.observe != nil {
		s.before = *t
	}
}

func (s *Store) changed(op string, t *Task, move *holdfast.Transition) {
	if s.observe != nil {
		s.observe(Change{Op: op, Before: &s.before, After: t, Move: move})
	}
}

// Restarted says that the server was started anew just now, with all its data: open transactions and sessions are gone, and Fence counts
// its settle from now. A simulator that sets the clock may call it too: store/sqlite takes a leap of the clock for a
// restart, store/postgres does not.
func (s *Store) Restarted() {
	s.epoch++
	s.started = s.now()
	s.Stopped()
}

// The rows as they are, in the order of their ids or names, for whoever checks invariants. They are not copies: nobody may change
// them, or keep them until the next effect.

// Tasks returns every task.
func (s *Store) Tasks() []Task { return s.db.tasks }

// Task returns one task, nil if there is none.
func (s *Store) Task(id holdfast.TaskID) *Task { return s.db.task(id) }

// Receipts returns every receipt that stands.
func (s *Store) Receipts() []Receipt { return s.db.receipts }

// Runs returns every run.
func (s *Store) Runs() []Run { return s.db.runs }

// Run returns one run, nil if there is none.
func (s *Store) Run(id holdfast.RunID) *Run { return s.db.run(id) }

// Lanes returns every known lane.
func (s *Store) Lanes() []Lane { return s.db.lanes }

// Cancellations returns the words that no run has heard for certain.
func (s *Store) Cancellations() []Cancellation { return s.db.cancellations }

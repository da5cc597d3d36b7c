package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Inserter stores new tasks.
type Inserter interface {
	// Insert stores the tasks and one outbox entry per queue in one transaction. The caller has validated the tasks and
	// set their queues. A task that is due at once is stored as ticketed, and its outbox entry lists it. Later tasks
	// are in no outbox entry; DispatchDue publishes their tickets. DispatchOutbox may publish an outbox entry once it
	// is older than grace.
	//
	// If another open transaction has stored a task with the same unique key, Insert waits at most half a second for
	// the end of that transaction. Then it returns a *KeyHeldError that names the key. If transactions hold several
	// keys, it returns after at most one more second. If a store has only one writer at a time, any open transaction
	// that writes delays every Insert, with and without keys.
	//
	// Before Insert stores tasks with UniqueFor or UniqueWhileOpen, it removes their unique keys from the tasks that no
	// longer have a right to them. If a call has several tasks with the same key, the first one that finds it free gets
	// it. The store keeps the unique key of a task with UniqueFor for that time, also if Prune deletes the task before; see
	// holdfast.NewTask.KeepsKey. If a person deletes the task, its key is free.
	//
	// Insert locks the keys of ordered tasks, in sorted order, before it gives these tasks their ids. It keeps the
	// locks until its transaction ends. So among the ordered tasks of a key, a lower id is committed before a higher
	// id. If another transaction holds a lock, Insert waits at most half a second and then returns a *KeyHeldError. See
	// Order.
	Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// InsertTx is Insert in a transaction of the caller. It neither commits nor rolls back. The settings of that
	// transaction determine how long InsertTx waits for a unique key. After an error the caller must roll back.
	InsertTx(ctx context.Context, tx Tx, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// CommittedOutbox returns, in any order, the given outbox entries that are committed, still exist and are younger
	// than their grace. A producer calls it to notice the commit of a transaction that it has passed to InsertTx. After
	// a rollback, another transaction may get the same ids, so the tickets may differ from those that InsertTx
	// returned.
	CommittedOutbox(ctx context.Context, entries []int64) ([]OutboxEntry, error)
	// DeleteOutbox deletes outbox entries after the broker has confirmed their tickets. It ignores entries that do not
	// exist.
	DeleteOutbox(ctx context.Context, entries []int64) error
}

// KeyHeldError means that nothing was stored because other open transactions hold unique keys of the tasks, or have
// stored ordered tasks of the same keys. It is a holdfast.ErrUnavailable.
type KeyHeldError struct {
	Ordered bool     // the keys belong to ordered tasks; otherwise they are unique keys
	Keys    []string // the held keys that the store knows
}

func (e *KeyHeldError) Error() string {
	if e.Ordered {
		return fmt.Sprintf("another open transaction has stored ordered tasks of the keys %q; try again when it has ended", e.Keys)
	}
	switch len(e.Keys) {
	case 0:
		return "another open transaction holds one of the unique keys; try again when it has ended"
	case 1:
		return fmt.Sprintf("another open transaction holds the unique key %q; try again when it has ended", e.Keys[0])
	}
	return fmt.Sprintf("other open transactions hold the unique keys %q; try again when they have ended", e.Keys)
}

func (e *KeyHeldError) Unwrap() error { return holdfast.ErrUnavailable }

// Inserted is the result of Insert.
type Inserted struct {
	Tasks   []InsertedTask // one per task of the call
	Entries []OutboxEntry
}

// InsertedTask is the result for one task.
type InsertedTask struct {
	ID holdfast.TaskID
	// Duplicate means that a task has the same unique key. ID is the id of that task, and nothing was stored.
	Duplicate bool
	// State is the state of the task that has the unique key, if Duplicate is set. It is empty if that task was deleted
	// and its key is kept; see Inserter.Insert.
	State holdfast.State
}

// OutboxEntry lists tickets that may not be published yet.
type OutboxEntry struct {
	ID      int64
	Queue   string
	Tickets []message.Ticket
}

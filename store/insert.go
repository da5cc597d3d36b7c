package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

// Inserter accepts tasks.
type Inserter interface {
	// Insert stores the tasks with one outbox receipt per lane, in one transaction. The tasks have been validated, and
	// have a lane. Tasks due at once count as ticketed, covered by their receipt; later ones are left
	// to DispatchDue and appear in no receipt. Others may publish the receipts once they are older than grace. If
	// another open transaction stores a task with the same unique key, Insert waits for that transaction for at most
	// half a second. Then it returns a *KeyHeldError that names the key; if several keys are held, it returns at most a
	// second later. In a store with one writer at a time, any open transaction that writes delays every Insert, with
	// and without keys.
	Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// InsertTx does the same inside the caller's transaction; it neither commits nor rolls back. The settings of the
	// caller's transaction decide how long it waits for a unique key. After an error the caller must roll back.
	InsertTx(ctx context.Context, tx Tx, tasks []holdfast.NewTask, grace time.Duration) (Inserted, error)
	// Discharge deletes receipts whose tickets the broker has confirmed. Receipts
	// that are gone already are no error.
	Discharge(ctx context.Context, receipts []int64) error
}

// KeyHeldError says that other open transactions hold unique keys of tasks, and that nothing was stored. It is a
// holdfast.ErrUnavailable.
type KeyHeldError struct {
	Keys []string // known to be held; empty if the store could not find them
}

func (e *KeyHeldError) Error() string {
	switch len(e.Keys) {
	case 0:
		return "another open transaction holds one of the unique keys; try again when it has ended"
	case 1:
		return fmt.Sprintf("another open transaction holds the unique key %q; try again when it has ended", e.Keys[0])
	}
	return fmt.Sprintf("other open transactions hold the unique keys %q; try again when they have ended", e.Keys)
}

func (e *KeyHeldError) Unwrap() error { return holdfast.ErrUnavailable }

// Inserted is the answer to Insert.
type Inserted struct {
	Tasks    []InsertedTask // one per task asked for
	Receipts []Receipt
}

// InsertedTask says where a task is.
type InsertedTask struct {
	ID holdfast.TaskID
	// Duplicate means that the unique key was taken: ID is the task that has it and
	// nothing was stored.
	Duplicate bool
}

// Receipt stands for tickets that may still have to be published.
type Receipt struct {
	ID      int64
	Lane    string
	Tickets []message.Ticket
}

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
)

// Transfer moves tasks from one store to another unchanged. The caller makes sure that no worker is live in either
// store at that time.
type Transfer interface {
	// Export calls f with every task, in the order of the ids, and returns the highest id that the store has ever
	// assigned. It first waits for the end of transactions that are storing tasks. No other call can change a task
	// while Export runs, so f gets all tasks at one point in time. Export returns ErrConflict if a task is running. If
	// f returns an error, Export stops and returns that error unchanged.
	Export(ctx context.Context, f func(Record) error) (last holdfast.TaskID, err error)
	// Import stores records with their ids in one transaction, and returns how many it stored. It skips tasks that the
	// store already has. Ready tasks become due at their time. Afterwards the store assigns no id up to last to another
	// task. The records must be sorted by id, and none of the tasks may be running.
	//
	// Import returns an ErrConflict that names the task if its id or its unique key belongs to another task of the
	// store, which may be deleted if the store keeps its key. It returns ErrInvalid if the store cannot store a record.
	Import(ctx context.Context, records []Record, last holdfast.TaskID) (stored int, err error)
	// ExportKeys calls f with every unique key that the store keeps at present, in the order of the keys; see
	// holdfast.NewTask.KeepsKey. If f returns an error, ExportKeys stops and returns that error unchanged.
	ExportKeys(ctx context.Context, f func(KeptKey) error) error
	// ImportKeys stores unique keys in one transaction. It skips keys that the store already keeps for the same tasks.
	// It returns an ErrConflict that names the key if a key belongs to another task of the store.
	ImportKeys(ctx context.Context, keys []KeptKey) error
}

// KeptKey is a unique key that the store keeps until a time, also if its task is deleted before.
type KeptKey struct {
	Key       string
	Task      holdfast.TaskID
	CreatedAt time.Time // when the task was stored
	Until     time.Time
}

// Record is a task with all its exported data.
type Record struct {
	holdfast.Task                    // with payload, without its worker
	Requeued      bool               // see Due.Requeued
	Order         ordered.Mark       // mark of an ordered task
	Leads         bool               // the task is the active ordered task of its key
	Parks         int                // how often the task was parked at its current attempt
	Data          []Datum            // sorted by name
	Attempts      []holdfast.Attempt // oldest first, with the names of their workers but not the ids
}

// StillRunning returns the ErrConflict for an export that finds a running task.
func StillRunning(id holdfast.TaskID) error {
	err := fmt.Errorf("%w: cannot export task %s: it is running, or its worker died", holdfast.ErrConflict, id)
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintFinishTasks})
}

// Clash checks the records that an import did not store. It returns nil if the store has the task of each record, and
// otherwise an ErrConflict for the first record whose task is missing. existing has the tasks of the store with the ids
// of the records. holder returns the task of the store with a given unique key.
func Clash(records []Record, existing []holdfast.Task, holder func(unique string) (holdfast.TaskID, error)) error {
	byID := make(map[holdfast.TaskID]holdfast.Task, len(existing))
	for _, task := range existing {
		byID[task.ID] = task
	}
	for _, record := range records {
		task, found := byID[record.ID]
		switch {
		case found && record.isOf(task):
		case found:
			return fmt.Errorf("%w: the store has another task with the id %s, of type %s, created at %s; import into a store without other tasks",
				holdfast.ErrConflict, task.ID, task.Type, task.CreatedAt.Format(time.RFC3339Nano))
		default:
			id, err := holder(record.Unique)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: task %s has the same unique key %.100q as task %s of the store; import into a store without other tasks",
				holdfast.ErrConflict, record.ID, record.Unique, id)
		}
	}
	return nil
}

// isOf reports whether the record and the task are the same task. Its state may have changed in one of the stores.
func (r Record) isOf(task holdfast.Task) bool {
	return r.Type == task.Type && r.Queue == task.Queue && r.Priority == task.Priority && r.Unique == task.Unique && r.Key == task.Key && r.CreatedAt.Equal(task.CreatedAt) &&
		string(r.Payload) == string(task.Payload)
}

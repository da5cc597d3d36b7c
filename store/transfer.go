package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// Transfer moves tasks from one store to another one unchanged. The caller makes sure that no worker is live in either
// store meanwhile.
type Transfer interface {
	// Export calls f with every task in the order of the ids, and returns the highest id that the store ever gave out.
	// It waits until the transactions that are storing tasks have ended. While it runs, no other call can change a
	// task, so f sees all tasks at one point in time. Returns ErrConflict if a task is running. An error of f ends the
	// export; Export returns it unchanged.
	Export(ctx context.Context, f func(Record) error) (last holdfast.TaskID, err error)
	// Import stores records with the ids they have, in one transaction, and returns how many it stored. It leaves out
	// the tasks that the store has already. Ready tasks become due at their time. The store gives no id up to last to
	// another task from then on. The records are in the order of their ids, and no task of theirs is running.
	//
	// Returns an ErrConflict that names the task if its id or its unique key belongs to another task of the store, and
	// ErrInvalid if the store cannot hold a record.
	Import(ctx context.Context, records []Record, last holdfast.TaskID) (stored int, err error)
}

// Record is a task with everything that an export has of it.
type Record struct {
	holdfast.Task                    // complete, with payload, without its run
	Again         bool               // see Due.Again
	Parks         int                // how often the task was parked at its present attempt
	Attempts      []holdfast.Attempt // oldest first, without their runs, with the names of their workers
}

// StillRunning returns the ErrConflict of an export that meets a running task.
func StillRunning(id holdfast.TaskID) error {
	err := fmt.Errorf("%w: task %s is running, or its worker ended without handing it back", holdfast.ErrConflict, id)
	return holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintFinishTasks})
}

// Clash takes the records that an import did not store. It returns nil if the store has the task of each record, and
// otherwise an ErrConflict for the first record whose task it does not have. there lists the tasks of the store with
// the ids of the records. holder returns the task of the store that has a unique key.
func Clash(records []Record, there []holdfast.Task, holder func(unique string) (holdfast.TaskID, error)) error {
	byID := make(map[holdfast.TaskID]holdfast.Task, len(there))
	for _, task := range there {
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
			return fmt.Errorf("%w: task %s has the unique key %.100q, which task %s of the store has too; import into a store without other tasks",
				holdfast.ErrConflict, record.ID, record.Unique, id)
		}
	}
	return nil
}

// isOf reports whether the record and the task are the same task, whose state may have changed in one of the two
// stores.
func (r Record) isOf(task holdfast.Task) bool {
	return r.Type == task.Type && r.Lane == task.Lane && r.Unique == task.Unique && r.CreatedAt.Equal(task.CreatedAt) &&
		string(r.Payload) == string(task.Payload)
}

package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Order lets ordered tasks of a key start one after the other, in the order of their ids; see Inserter.Insert.
//
// Each key with open ordered tasks has at most one active task. Only the active task can be due, have a ticket, or run.
// All later tasks of the key wait: they are ready, have no ticket, and cost nothing. When the active task ends, the
// lowest waiting task becomes active in the same transaction, and is due or in an outbox entry. If an open transaction
// is storing tasks of the key at that time, a later call of ReleaseBlocked makes the change instead.
//
// The active task has ended when it is done, cancelled, archived or deleted. A dead task also ends its turn if the
// AfterDeath of its transition is AfterDeathSkip. With AfterDeathBlock it remains active. With AfterDeathDead it
// remains active, and the waiting tasks become due and doomed; see holdfast.Task.Doomed.
//
// If a person retries a dead or cancelled task, it waits again and keeps its place. Waiting tasks with lower ids start
// before it. Tasks with higher ids start after it, unless they have started already.
type Order interface {
	// OrderOf returns the place of an ordered task. It returns ErrNotFound if the task does not exist, is not ordered,
	// or is neither active nor waiting.
	OrderOf(ctx context.Context, task holdfast.TaskID) (KeyPlace, error)
	// OrderedKeys returns at most limit keys: first the keys whose active task is dead, then the other keys with
	// waiting tasks, each part sorted. With onlyDead it returns only the first part.
	OrderedKeys(ctx context.Context, onlyDead bool, limit int) ([]OrderedKey, error)
}

// OrderedKey is a key with ordered tasks.
type OrderedKey struct {
	Key    string          `json:"key"`
	Active holdfast.TaskID `json:"active,omitempty"` // 0 if no task is active now
	State  holdfast.State  `json:"state,omitempty"`  // of the active task
	Since  time.Time       `json:"since,omitzero"`   // when the active task was created, or died if it is dead
	// Waiting is the number of tasks that wait, at most MaxCountedBlocked.
	Waiting int `json:"waiting"`
	// Doomed means that the active task is dead, and that all tasks behind it die too.
	Doomed bool `json:"doomed,omitempty"`
}

// KeyPlace is the place of a task in the order of its key.
type KeyPlace struct {
	OrderedKey
	// Ahead is the number of waiting tasks before this one, at most MaxCountedBlocked. It is -1 for the active task.
	Ahead int
}

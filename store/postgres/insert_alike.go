package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// tasksAlike reports whether tasks differ only in their payloads and are due at once, without keys.
func tasksAlike(tasks []holdfast.NewTask) bool {
	first := tasks[0]
	return !slices.ContainsFunc(tasks, func(t holdfast.NewTask) bool {
		return t.Type != first.Type || t.Lane != first.Lane || t.MaxAttempts != first.MaxAttempts || t.Delay > 0 || !t.At.IsZero() || t.Unique != ""
	})
}

// insertAlike stores such tasks.
func (s *Store) insertAlike(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	first := tasks[0]
	if err := s.storeLanes(ctx, []string{first.Lane}); err != nil {
		return store.Inserted{}, err
	}
	var rows []struct {
		ID, First int64
		Size      int
		Tasks     pq.Int64Array
	}
	payloads := jsons(len(tasks), func(i int) []byte { return payloadOf(tasks[i]) })
	if err := s.all(ctx, s.db, &rows, "insert_alike", first.Lane, first.Type, first.MaxAttempts, payloads, micros(grace)); err != nil {
		return store.Inserted{}, err
	}
	if len(rows) != 1 || rows[0].Size != len(tasks) {
		return store.Inserted{}, errNoTasks
	}
	receipt := store.Receipt{ID: rows[0].ID, Lane: first.Lane, Tickets: make([]holdfast.Ticket, len(tasks))}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks)), Receipts: []store.Receipt{receipt}}
	for i := range tasks {
		id := rows[0].First + int64(i)
		if len(rows[0].Tasks) > 0 {
			id = rows[0].Tasks[i]
		}
		inserted.Tasks[i].ID = holdfast.TaskID(id)
		receipt.Tickets[i] = holdfast.Ticket{Task: holdfast.TaskID(id), Attempt: 1}
	}
	return inserted, nil
}

// payloadOf is a task's payload as it is stored.
func payloadOf(t holdfast.NewTask) []byte {
	if len(t.Payload) == 0 {
		return []byte("null")
	}
	return t.Payload
}

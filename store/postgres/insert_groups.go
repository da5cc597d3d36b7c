package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// insertUniform inserts tasks for which column.Uniform is true. If plan is not 0, they become members of that plan, and
// none may have a trace.
func (s *inserter) insertUniform(ctx context.Context, q store.Tx, plan store.ID, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	first := tasks[0]
	if err := s.storeQueues(ctx, []string{first.Subqueue()}); err != nil {
		return store.Inserted{}, err
	}
	var rows []struct {
		ID, First int64
		Size      int
		Tasks     pq.Int64Array
	}
	payloads := jsons(len(tasks), func(i int) []byte { return column.Payload(&tasks[i]) })
	name, args := "insert_uniform", []any{first.Subqueue(), first.Type, first.MaxAttempts, payloads, micros(grace)}
	switch {
	case plan != 0:
		name, args = "insert_uniform_members", append(args, int64(plan))
	case len(tasks) == 1:
		name = "insert_one"
	}
	if column.Traced(tasks) {
		name, args = name+"_traced", append(args, texts(len(tasks), func(i int) string { return tasks[i].Trace }))
	}
	if err := s.all(ctx, q, &rows, name, args...); err != nil {
		return store.Inserted{}, err
	}
	if len(rows) != 1 || rows[0].Size != len(tasks) {
		return store.Inserted{}, errNoTasks
	}
	entry := store.OutboxEntry{ID: rows[0].ID, Queue: first.Subqueue(), Tickets: make([]message.Ticket, len(tasks))}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks)), Entries: []store.OutboxEntry{entry}}
	for i := range tasks {
		id := rows[0].First + int64(i)
		if len(rows[0].Tasks) > 0 {
			id = rows[0].Tasks[i]
		}
		inserted.Tasks[i].ID = holdfast.TaskID(id)
		entry.Tickets[i] = message.Ticket{Task: holdfast.TaskID(id), Attempt: 1}
	}
	return inserted, nil
}

const (
	// probeLimit limits the time of the search for held keys.
	probeLimit = time.Second
	// probeWait is how long the search waits for each key.
	probeWait = 20 * time.Millisecond
)

// errProbed rolls a probe back.
var errProbed = errors.New("the keys are free")

// nameKeys adds the held keys to a *store.KeyHeldError, and returns every other error unchanged. If the search fails or
// takes too long, the error has the keys that were found by then.
func (s *inserter) nameKeys(ctx context.Context, b batch, err error) error {
	held := new(store.KeyHeldError)
	if !errors.As(err, &held) {
		return err
	}
	keys := slices.DeleteFunc(slices.Clone(b.uniqueKeys), func(key string) bool { return key == "" })
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if held.Ordered {
		keys = b.orderedKeys
	}
	if len(keys) == 1 {
		held.Keys = keys
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if probeErr := s.probeKeys(ctx, b, keys, held); probeErr != nil {
		s.log.WithError(probeErr).Debug("search for held keys stopped early")
	}
	return err
}

// probeKeys finds the keys that other open transactions hold, and adds them to held. It halves the list until one key
// is left.
func (s *inserter) probeKeys(ctx context.Context, b batch, keys []string, held *store.KeyHeldError) error {
	err := s.probe(ctx, b, keys, held.Ordered)
	switch waited := new(store.KeyHeldError); {
	case errors.Is(err, errProbed):
		return nil
	case !errors.As(err, &waited):
		return err
	case len(keys) == 1:
		held.Keys = append(held.Keys, keys[0])
		return nil
	}
	half := len(keys) / 2
	if err := s.probeKeys(ctx, b, keys[:half], held); err != nil {
		return err
	}
	return s.probeKeys(ctx, b, keys[half:], held)
}

// probe inserts small tasks with the unique keys, or locks the keys of ordered tasks, and rolls that back. It returns
// errProbed if no other open transaction holds one of the keys, otherwise a *store.KeyHeldError.
func (s *inserter) probe(ctx context.Context, b batch, keys []string, ordered bool) error {
	one := []int{0}
	tasks := batch{
		size: len(keys), uniqueKeys: keys, unique: true,
		types: slices.Repeat(pick(b.types, one), len(keys)), queues: slices.Repeat(pick(b.queues, one), len(keys)),
		maxAttempts: slices.Repeat(pick(b.maxAttempts, one), len(keys)), payloads: slices.Repeat([]string{"null"}, len(keys)),
		delays: b.delays[:0], moments: b.moments[:0],
	}
	return s.tx(ctx, func(tx *sqlx.Tx) error {
		if err := pgclient.SetTimeout(ctx, tx, "lock_timeout", probeWait); err != nil {
			return err
		}
		var err error
		if ordered {
			_, err = s.exec(ctx, tx, "order_lock", pq.StringArray(keys))
		} else {
			_, err = s.insertFree(ctx, tx, tasks)
		}
		if err != nil {
			return keyHeld(err)
		}
		return errProbed
	})
}

package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// inserter is the role store.Inserter.
type inserter struct{ *database }

// longPayload is from how many bytes on a payload is kept apart from its task. A shorter one is cheaper to
// write with every move than to look up.
const longPayload = 1024

// Insert implements store.Inserter.
func (s *inserter) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	const operation = "insert tasks"
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	if err := storable(tasks); err != nil {
		return store.Inserted{}, fmt.Errorf("%s: %w", operation, err)
	}
	var inserted store.Inserted
	err := s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		var err error
		inserted, err = insert(ctx, tx, tasks, tx.now, micros(grace))
		return err
	})
	if err != nil {
		return store.Inserted{}, err
	}
	return inserted, nil
}

// InsertTx implements store.Inserter. tx is a transaction of this driver on the same file. Everything is stored
// through it, a new lane as well: nobody else can write until it ends. It should have begun with the right to
// write (_txlock=immediate in the caller's data source name): one that has read first may lose it to another
// writer, which is an ErrUnavailable, and has to be repeated as a whole.
func (s *inserter) InsertTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	const operation = "insert tasks into a transaction"
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	if err := storable(tasks); err != nil {
		return store.Inserted{}, fmt.Errorf("%s: %w", operation, err)
	}
	inserted, err := insert(ctx, callers{tx, s.writer.texts}, tasks, s.now().UnixMicro(), micros(grace))
	if busy(err) {
		err = fmt.Errorf("%s: %w: another connection writes to %s: %w", operation, holdfast.ErrUnavailable, s.path, err)
		return store.Inserted{}, holdfast.WithHint(err,
			holdfast.Advice("roll back, try again, and begin with the right to write: open the database with _txlock=immediate"))
	}
	if err != nil {
		return store.Inserted{}, s.translate(ctx, operation, err)
	}
	return inserted, nil
}

// storable reports what no store of tasks can hold.
func storable(tasks []holdfast.NewTask) error {
	for _, task := range tasks {
		if task.At.UTC().Year() > 9999 {
			return fmt.Errorf("%w: the year of %s is beyond 9999", holdfast.ErrInvalid, task.At)
		}
	}
	return nil
}

// insert stores tasks at the time now; now and grace are in microseconds.
func insert(ctx context.Context, q querier, tasks []holdfast.NewTask, now, grace int64) (store.Inserted, error) {
	b := batchOf(tasks, now)
	if _, err := q.exec(ctx, "insert_lanes", words(b.lanes), now); err != nil {
		return store.Inserted{}, err
	}
	before, err := one[scan.ID](ctx, q, "insert_first")
	if err != nil {
		return store.Inserted{}, err
	}
	rows, err := b.rows()
	if err != nil {
		return store.Inserted{}, err
	}
	stored, err := q.exec(ctx, "insert", rows, now, before.ID+1)
	if err != nil {
		return store.Inserted{}, err
	}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks))}
	for i := range tasks {
		inserted.Tasks[i].ID = holdfast.TaskID(before.ID + 1 + int64(i))
	}
	if len(b.keys) > 0 {
		err = duplicates(ctx, q, b, inserted.Tasks)
	} else if stored != len(tasks) {
		err = fmt.Errorf("the database stored %d of %d tasks", stored, len(tasks))
	}
	if err == nil {
		err = insertPayloads(ctx, q, b, inserted.Tasks)
	}
	if err == nil {
		inserted.Receipts, err = insertReceipts(ctx, q, b, inserted.Tasks, now, grace)
	}
	return inserted, err
}

// batch is a list of new tasks with what has been found out about them.
type batch struct {
	tasks []holdfast.NewTask
	later []int64  // when each is due, 0 at once
	lanes []string // each once, in the order they appear
	keys  []string // those there are
}

func batchOf(tasks []holdfast.NewTask, now int64) batch {
	b := batch{tasks: tasks, later: make([]int64, len(tasks))}
	for i, task := range tasks {
		switch {
		case task.Delay > 0:
			b.later[i] = now + micros(task.Delay)
		case !task.At.IsZero() && task.At.UnixMicro() > now:
			b.later[i] = task.At.UnixMicro()
		}
		if !slices.Contains(b.lanes, task.Lane) {
			b.lanes = append(b.lanes, task.Lane)
		}
		if task.Unique != "" {
			b.keys = append(b.keys, task.Unique)
		}
	}
	return b
}

// rows writes the tasks as sql/insert.sql takes them.
func (b batch) rows() (string, error) {
	rows := make([][6]any, len(b.tasks))
	for i := range b.tasks {
		task := &b.tasks[i]
		row := &rows[i]
		row[0], row[1], row[3] = task.Type, task.Lane, task.MaxAttempts
		if len(task.Payload) < longPayload {
			row[2] = string(column.Payload(task))
		}
		if b.later[i] != 0 {
			row[4] = b.later[i]
		}
		if task.Unique != "" {
			row[5] = task.Unique
		}
	}
	return encode(rows)
}

// encode writes JSON without the escapes that only web pages need.
func encode(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return text.String(), nil
}

var errNoHolder = errors.New("a task was refused for its unique key, which no task has")

// duplicates finds the tasks that were not stored, and those that have their keys.
func duplicates(ctx context.Context, q querier, b batch, tasks []store.InsertedTask) error {
	holders, err := all[scan.Holder](ctx, q, "insert_holders", words(b.keys))
	if err != nil {
		return err
	}
	byKey := make(map[string]holdfast.TaskID, len(holders))
	for _, holder := range holders {
		byKey[holder.Key] = holder.ID
	}
	for i, task := range b.tasks {
		if task.Unique == "" {
			continue
		}
		holder, ok := byKey[task.Unique]
		if !ok {
			return errNoHolder
		}
		if holder != tasks[i].ID {
			tasks[i] = store.InsertedTask{ID: holder, Duplicate: true}
		}
	}
	return nil
}

// insertPayloads stores the payloads that are too long for the row of their task.
func insertPayloads(ctx context.Context, q querier, b batch, tasks []store.InsertedTask) error {
	var long [][2]any
	for i := range b.tasks {
		if len(b.tasks[i].Payload) >= longPayload && !tasks[i].Duplicate {
			long = append(long, [2]any{int64(tasks[i].ID), string(b.tasks[i].Payload)})
		}
	}
	if len(long) == 0 {
		return nil
	}
	text, err := encode(long)
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, "insert_payloads", text)
	return err
}

// insertReceipts leaves one receipt per lane for the tasks that are due at once.
func insertReceipts(ctx context.Context, q querier, b batch, tasks []store.InsertedTask, now, grace int64) ([]store.Receipt, error) {
	var receipts []store.Receipt
	for _, lane := range b.lanes {
		var ids []int64
		for i := range b.tasks {
			if b.tasks[i].Lane == lane && b.later[i] == 0 && !tasks[i].Duplicate {
				ids = append(ids, int64(tasks[i].ID))
			}
		}
		if len(ids) == 0 {
			continue
		}
		row, err := one[scan.ID](ctx, q, "insert_receipts", lane, numbers(ids), now, grace)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, scan.Receipt(row.ID, lane, ids))
	}
	return receipts, nil
}

// Discharge implements store.Inserter.
func (s *inserter) Discharge(ctx context.Context, receipts []int64) error {
	if len(receipts) == 0 {
		return nil
	}
	return s.write(ctx, "discharge receipts", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "discharge", numbers(receipts))
		return err
	})
}

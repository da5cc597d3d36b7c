package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// inserter is the role store.Inserter.
type inserter struct{ *database }

// longPayload is the minimum size in bytes of a payload that has a row in another table. Every transition writes the
// row of its task. For a shorter payload, that costs less than a look-up in another table.
const longPayload = 1024

// Insert implements store.Inserter.
func (s *inserter) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	const operation = "insert tasks"
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	if err := checkTimes(tasks); err != nil {
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

// InsertTx implements store.Inserter. tx must be a transaction of this driver on the same file. InsertTx stores new
// queues in tx, too, because no other connection can write until tx ends.
//
// tx should begin as a write transaction: set _txlock=immediate in the caller's data source name. If tx has read and
// another connection has written since then, InsertTx returns an ErrUnavailable, and the caller must repeat the whole
// transaction.
func (s *inserter) InsertTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	const operation = "insert tasks into a transaction"
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	if err := checkTimes(tasks); err != nil {
		return store.Inserted{}, fmt.Errorf("%s: %w", operation, err)
	}
	err := s.checkFile(ctx)
	var inserted store.Inserted
	if err == nil {
		inserted, err = insert(ctx, callerTx{tx, s.writer.texts}, tasks, s.now().UnixMicro(), micros(grace))
	}
	if err != nil {
		return store.Inserted{}, s.callerError(ctx, operation, err)
	}
	return inserted, nil
}

// callerError translates the error of an operation in a transaction of a caller.
func (d *database) callerError(ctx context.Context, operation string, err error) error {
	if !busy(err) {
		return d.translate(ctx, operation, err)
	}
	err = fmt.Errorf("%s: %w: another connection writes to %s: %w", operation, holdfast.ErrUnavailable, d.path, err)
	return holdfast.WithHint(err, holdfast.Advice("roll back and try again; to prevent this, open the database with _txlock=immediate"))
}

// checkTimes returns an ErrInvalid if a task has a time that not every store can represent.
func checkTimes(tasks []holdfast.NewTask) error {
	for _, task := range tasks {
		if task.At.UTC().Year() > 9999 {
			return fmt.Errorf("%w: the year of %s is beyond 9999", holdfast.ErrInvalid, task.At)
		}
	}
	return nil
}

// insert stores tasks. The current time and the grace are in microseconds.
func insert(ctx context.Context, q querier, tasks []holdfast.NewTask, now, grace int64) (store.Inserted, error) {
	return insertMembers(ctx, q, 0, tasks, now, grace)
}

// insertMembers is insert for members of a plan, if plan is not 0.
func insertMembers(ctx context.Context, q querier, plan store.ID, tasks []holdfast.NewTask, now, grace int64) (store.Inserted, error) {
	b := batchOf(tasks, now)
	orders := querying{q, now}
	places, undecided, err := flow.LockKeys(ctx, orders, tasks)
	if err != nil {
		return store.Inserted{}, err
	}
	b.places = places
	if len(b.releases) > 0 {
		text, err := encode(b.releases)
		if err != nil {
			return store.Inserted{}, err
		}
		if _, err := q.exec(ctx, "insert_release", text, now); err != nil {
			return store.Inserted{}, err
		}
	}
	if _, err := q.exec(ctx, "insert_queues", stringList(b.queues), now); err != nil {
		return store.Inserted{}, err
	}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks))}
	first, stored, err := b.insert(ctx, q, plan, now)
	if err != nil {
		return store.Inserted{}, err
	}
	for i := range tasks {
		inserted.Tasks[i].ID = holdfast.TaskID(first + int64(i))
	}
	if len(b.keys) > 0 {
		err = findHolders(ctx, q, b, inserted.Tasks)
	} else if stored != len(tasks) {
		err = fmt.Errorf("the database stored %d of %d tasks", stored, len(tasks))
	}
	if err == nil {
		counts := make(tally)
		for i := range tasks {
			if task := inserted.Tasks[i]; !task.Duplicate {
				counts.add(countedRow{int64(task.ID), tasks[i].Subqueue(), tasks[i].Type}, allStates, 1)
			}
		}
		err = counts.store(ctx, q)
	}
	if err == nil {
		err = insertKept(ctx, q, b, inserted.Tasks, now)
	}
	if err == nil {
		err = insertPayloads(ctx, q, b, inserted.Tasks)
	}
	if err == nil {
		err = insertTags(ctx, q, b, inserted.Tasks)
	}
	if err == nil {
		inserted.Entries, err = insertEntries(ctx, q, b, inserted.Tasks, now, grace)
	}
	if err == nil {
		err = insertTopics(ctx, q, b, inserted.Tasks)
	}
	if err == nil && len(places) > 0 {
		err = insertOrdered(ctx, orders, b, inserted.Tasks, undecided)
	}
	return inserted, err
}

// batch is a list of new tasks, with data that is derived from them.
type batch struct {
	tasks  []holdfast.NewTask
	later  []int64  // due time of each task, in microseconds; 0 means at once
	queues []string // without duplicates, in the order of the tasks
	keys   []string // unique keys of the tasks that have one
	// releases lists [unique key, age in microseconds, whether its end releases it] for the keys that an earlier task may
	// lose; see holdfast.NewTask.
	releases [][3]any
	places   []ordered.Place // places of the tasks; nil if none is ordered
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
		if subqueue := task.Subqueue(); !slices.Contains(b.queues, subqueue) {
			b.queues = append(b.queues, subqueue)
		}
		if task.Unique != "" {
			b.keys = append(b.keys, task.Unique)
			if task.ReleasesKey() {
				b.releases = append(b.releases, [3]any{task.Unique, micros(task.UniqueFor), task.UniqueWhileOpen})
			}
		}
	}
	return b
}

// insert stores the tasks and returns the id of the first one and the number of stored tasks. The id of each task is one
// higher than that of the task before it. A task whose unique key another task has is not stored.
func (b *batch) insert(ctx context.Context, q querier, plan store.ID, now int64) (first int64, stored int, err error) {
	member := sql.NullInt64{Int64: int64(plan), Valid: plan != 0}
	if column.Uniform(b.tasks) && !column.Traced(b.tasks) {
		payloads, err := b.payloads()
		if err != nil {
			return 0, 0, err
		}
		task := &b.tasks[0]
		last, n, err := q.insert(ctx, "insert_uniform", payloads, task.Type, task.Subqueue(), task.MaxAttempts, member, now)
		return last - int64(n) + 1, n, err
	}
	before, err := one[scan.ID](ctx, q, "insert_first")
	if err != nil {
		return 0, 0, err
	}
	rows, err := b.rows()
	if err != nil {
		return 0, 0, err
	}
	stored, err = q.exec(ctx, "insert", rows, now, before.ID+1, member)
	return before.ID + 1, stored, err
}

// payloads returns the payloads in the form of the argument of the statement insert_uniform.
func (b *batch) payloads() (string, error) {
	list := make([]*string, len(b.tasks))
	for i := range b.tasks {
		if text := b.payload(i); len(text) < longPayload {
			list[i] = &text
		}
	}
	return encode(list)
}

// payload returns the payload of a task as text.
func (b *batch) payload(i int) string { return string(column.Payload(&b.tasks[i])) }

// ticketed reports whether a task gets an outbox entry: it is due, needs no slot, and does not wait for its turn among
// the ordered tasks of its key.
func (b *batch) ticketed(i int) bool {
	return b.later[i] == 0 && b.tasks[i].Topic == "" && (len(b.places) == 0 || b.places[i] != ordered.Waits)
}

// rows returns the tasks in the form of the argument of the statement insert.
func (b batch) rows() (string, error) {
	rows := make([][11]any, len(b.tasks))
	for i := range b.tasks {
		task := &b.tasks[i]
		row := &rows[i]
		row[0], row[1], row[3] = task.Type, task.Subqueue(), task.MaxAttempts
		if len(task.Payload) < longPayload {
			row[2] = b.payload(i)
		}
		if b.later[i] != 0 {
			row[4] = b.later[i]
		}
		if task.Unique != "" {
			row[5] = task.Unique
		}
		if len(task.Tags) > 0 {
			row[6] = column.Tags(task.Tags)
		}
		if task.Key != "" {
			row[7] = task.Key
		}
		if task.Ordered {
			row[8] = int(b.places[i])
		}
		if task.Topic != "" {
			row[9] = task.Topic
		}
		if task.Trace != "" {
			row[10] = task.Trace
		}
	}
	return encode(rows)
}

// encode returns a value as JSON. It does not escape the special characters of HTML, which would make the text longer.
func encode(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return text.String(), nil
}

var errNoHolder = errors.New("the database skipped a task although its unique key is free")

// findHolders stores the ids of duplicates in tasks. A duplicate was not stored, because another task has its unique
// key.
func findHolders(ctx context.Context, q querier, b batch, tasks []store.InsertedTask) error {
	holders, err := all[scan.Keeper](ctx, q, "insert_holders", stringList(b.keys))
	if err != nil {
		return err
	}
	byKey := make(map[string]scan.Keeper, len(holders))
	for _, holder := range holders {
		byKey[holder.Key] = holder
	}
	for i, task := range b.tasks {
		if task.Unique == "" {
			continue
		}
		holder, ok := byKey[task.Unique]
		if !ok {
			return errNoHolder
		}
		if holder.ID != tasks[i].ID {
			tasks[i] = holder.Inserted()
		}
	}
	return nil
}

// insertKept stores for how long the unique keys of the new tasks are kept.
func insertKept(ctx context.Context, q querier, b batch, tasks []store.InsertedTask, now int64) error {
	var kept [][3]any
	for i := range b.tasks {
		if b.tasks[i].KeepsKey() && !tasks[i].Duplicate {
			kept = append(kept, [3]any{b.tasks[i].Unique, int64(tasks[i].ID), micros(b.tasks[i].UniqueFor)})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	text, err := encode(kept)
	if err == nil {
		_, err = q.exec(ctx, "insert_kept", text, now)
	}
	return err
}

// insertPayloads stores the long payloads; see longPayload.
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

func insertTags(ctx context.Context, q querier, b batch, tasks []store.InsertedTask) error {
	var tagged []int64
	for i := range b.tasks {
		if len(b.tasks[i].Tags) > 0 && !tasks[i].Duplicate {
			tagged = append(tagged, int64(tasks[i].ID))
		}
	}
	if len(tagged) == 0 {
		return nil
	}
	_, err := q.exec(ctx, "insert_tags", numbers(tagged))
	return err
}

func insertTopics(ctx context.Context, q querier, b batch, tasks []store.InsertedTask) error {
	var rows [][4]any
	for i := range b.tasks {
		if b.tasks[i].Topic == "" || tasks[i].Duplicate {
			continue
		}
		phase := flow.Waits
		if b.later[i] != 0 || b.tasks[i].Ordered {
			phase = flow.Later
		}
		rows = append(rows, [4]any{int64(tasks[i].ID), b.tasks[i].Subqueue(), b.tasks[i].Topic, int(phase)})
	}
	if len(rows) == 0 {
		return nil
	}
	text, err := encode(rows)
	if err != nil {
		return err
	}
	_, err = q.exec(ctx, "insert_topics", text)
	return err
}

// insertOrdered stores which ordered tasks wait and which are the active ones of their keys. Then it moves the keys in
// undecided and those of duplicates, because their next tasks may have to start.
func insertOrdered(ctx context.Context, tx transact.Changer, b batch, tasks []store.InsertedTask, undecided []string) error {
	waiting, active := [][2]any{}, [][2]any{}
	for i, place := range b.places {
		row := [2]any{b.tasks[i].Key, int64(tasks[i].ID)}
		switch {
		case tasks[i].Duplicate && b.tasks[i].Ordered: // the task behind this one may have to start
			undecided = append(undecided, b.tasks[i].Key)
		case place == ordered.Waits:
			waiting = append(waiting, row)
		case place == ordered.Leads:
			active = append(active, row)
		}
	}
	for _, change := range []struct {
		name string
		rows [][2]any
	}{{"insert_ordered", waiting}, {"insert_active", active}} {
		if len(change.rows) == 0 {
			continue
		}
		text, err := encode(change.rows)
		if err != nil {
			return err
		}
		if _, err := tx.Change(ctx, change.name, text); err != nil {
			return err
		}
	}
	slices.Sort(undecided)
	return flow.MoveKeys(ctx, tx, slices.Compact(undecided), nil)
}

// insertEntries stores one outbox entry per queue for the tasks that are due at once.
func insertEntries(ctx context.Context, q querier, b batch, tasks []store.InsertedTask, now, grace int64) ([]store.OutboxEntry, error) {
	var entries []store.OutboxEntry
	for _, queue := range b.queues {
		var ids []int64
		for i := range b.tasks {
			if b.tasks[i].Subqueue() == queue && b.ticketed(i) && !tasks[i].Duplicate {
				ids = append(ids, int64(tasks[i].ID))
			}
		}
		if len(ids) == 0 {
			continue
		}
		id, _, err := q.insert(ctx, "insert_outbox", queue, numbers(ids), now, grace)
		if err != nil {
			return nil, err
		}
		entries = append(entries, scan.Entry(id, queue, ids))
	}
	return entries, nil
}

// CommittedOutbox implements store.Inserter.
func (s *inserter) CommittedOutbox(ctx context.Context, entries []int64) ([]store.OutboxEntry, error) {
	const operation = "find committed outbox entries"
	if len(entries) == 0 {
		return nil, nil
	}
	rows, err := list[entryRow](ctx, s, operation, "committed_outbox", numbers(entries), s.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	committed := make([]store.OutboxEntry, len(rows))
	for i, row := range rows {
		ids, err := row.taskIDs()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", operation, err)
		}
		committed[i] = scan.Entry(row.ID, row.Queue, ids)
	}
	return committed, nil
}

type entryRow struct {
	ID    int64
	Queue string
	Tasks string
}

func (r entryRow) taskIDs() (ids []int64, err error) {
	if err = json.Unmarshal([]byte(r.Tasks), &ids); err != nil {
		return nil, fmt.Errorf("the tasks of outbox entry %d: %w", r.ID, err)
	}
	return ids, nil
}

// DeleteOutbox implements store.Inserter.
func (s *inserter) DeleteOutbox(ctx context.Context, entries []int64) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := s.change(ctx, "delete outbox entries", "delete_outbox", numbers(entries))
	return err
}

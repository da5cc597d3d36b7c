package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// inserter is the role store.Inserter.
type inserter struct{ *database }

// keyWait is how long an insert waits for a unique key that another open transaction holds.
const keyWait = 500 * time.Millisecond

// Insert implements store.Inserter. Tasks without unique keys take one statement and one round trip. Tags and
// keys have a statement of their own, so that tasks without them do not pay for them.
func (s *inserter) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (inserted store.Inserted, err error) {
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	const operation = "insert tasks"
	if column.Uniform(tasks) {
		err = s.do(ctx, operation, func() error {
			inserted, err = s.insertUniform(ctx, s.db, 0, tasks, grace)
			return err
		})
		return inserted, err
	}
	batch, err := batchOf(tasks, grace)
	if err != nil {
		return store.Inserted{}, err
	}
	err = s.do(ctx, operation, func() error {
		if err := s.storeQueues(ctx, batch.queues); err != nil {
			return err
		}
		switch {
		case !batch.unique && !batch.marked():
			inserted, err = s.insert(ctx, s.db, batch, batch.binary())
			return err
		case !batch.unique && len(batch.orderedKeys) == 0:
			inserted, err = s.insertFree(ctx, s.db, batch)
			return err
		}
		err = s.tx(ctx, func(tx *sqlx.Tx) error {
			if err := pgclient.SetTimeout(ctx, tx, "lock_timeout", keyWait); err != nil {
				return err
			}
			inserted, err = s.insertLocked(ctx, tx, batch, tasks)
			return keyHeld(err)
		})
		return s.nameKeys(ctx, batch, err)
	})
	if err != nil {
		return store.Inserted{}, err
	}
	return inserted, nil
}

// InsertTx implements store.Inserter.
func (s *inserter) InsertTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	return s.insertTx(ctx, tx, 0, tasks, grace)
}

// insertTx is InsertTx for members of a plan, if plan is not 0.
func (s *inserter) insertTx(ctx context.Context, tx store.Tx, plan store.ID, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	batch, err := batchOf(tasks, grace)
	if err != nil || len(tasks) == 0 {
		return store.Inserted{}, err
	}
	batch.plan = plan
	const operation = "insert tasks into a transaction"
	// The queues are stored outside of the caller's transaction. Inside it, a new queue would block all other inserts
	// into that queue until the caller commits.
	if err := s.do(ctx, operation, func() error { return s.storeQueues(ctx, batch.queues) }); err != nil {
		return store.Inserted{}, err
	}
	var inserted store.Inserted
	switch {
	case batch.unique || len(batch.orderedKeys) > 0:
		inserted, err = s.insertLocked(ctx, tx, batch, tasks)
	case batch.marked():
		inserted, err = s.insertFree(ctx, tx, batch)
	default:
		inserted, err = s.insert(ctx, tx, batch, batch.text())
	}
	if err != nil {
		return store.Inserted{}, pgclient.Translate(ctx, operation, err)
	}
	return inserted, nil
}

// batch is a list of tasks as columns. A column that no task uses stays empty, and the statement reads it as null.
type batch struct {
	size                         int
	types, queues, payloads      pq.StringArray
	uniqueKeys, keys, topics     pq.StringArray
	traces                       pq.StringArray
	tags                         pq.StringArray // see holdfast.NewTask; the tags of a task are a JSON list
	maxAttempts, delays, moments pq.Int64Array
	places                       pq.Int64Array // see ordered.Place
	kept                         pq.Int64Array // for how many microseconds the unique keys are kept; 0 means as long as the task
	grace                        int64
	unique                       bool
	releases                     []release // unique keys that an earlier task may lose, sorted
	orderedKeys                  []string  // keys of the ordered tasks, sorted and distinct
	plan                         store.ID  // the plan that the tasks are members of, or 0
}

// marked reports whether a task has tags, a key, a topic or a trace.
func (b *batch) marked() bool { return len(b.tags)+len(b.keys)+len(b.topics)+len(b.traces) > 0 }

func batchOf(tasks []holdfast.NewTask, grace time.Duration) (batch, error) {
	n := len(tasks)
	b := batch{
		size: n, orderedKeys: ordered.Keys(tasks), types: make(pq.StringArray, n), queues: make(pq.StringArray, n), payloads: make(pq.StringArray, n),
		maxAttempts: make(pq.Int64Array, n), grace: micros(grace),
		delays: pq.Int64Array{}, moments: pq.Int64Array{}, places: pq.Int64Array{}, uniqueKeys: pq.StringArray{},
	}
	for i, task := range tasks {
		b.types[i], b.queues[i], b.payloads[i], b.maxAttempts[i] = task.Type, task.Subqueue(), string(column.Payload(&task)), int64(task.MaxAttempts)
		if task.Delay > 0 {
			b.delays = sized(b.delays, n)
			b.delays[i] = micros(task.Delay)
		}
		if !task.At.IsZero() {
			if task.At.UTC().Year() > 9999 {
				return batch{}, fmt.Errorf("insert tasks: %w: the year of %s is beyond 9999", holdfast.ErrInvalid, task.At)
			}
			b.moments = sized(b.moments, n)
			b.moments[i] = task.At.UnixMicro()
		}
		if task.Unique != "" {
			b.unique = true
			b.uniqueKeys = sized(b.uniqueKeys, n)
			b.uniqueKeys[i] = task.Unique
			if task.ReleasesKey() {
				b.releases = append(b.releases, release{task.Unique, micros(task.UniqueFor), task.UniqueWhileOpen})
			}
			if task.KeepsKey() {
				b.kept = sized(b.kept, n)
				b.kept[i] = micros(task.UniqueFor)
			}
		}
		if len(task.Tags) > 0 {
			b.tags = sized(b.tags, n)
			b.tags[i] = column.Tags(task.Tags)
		}
		if task.Key != "" {
			b.keys = sized(b.keys, n)
			b.keys[i] = task.Key
		}
		if task.Topic != "" {
			b.topics = sized(b.topics, n)
			b.topics[i] = task.Topic
		}
		if task.Trace != "" {
			b.traces = sized(b.traces, n)
			b.traces[i] = task.Trace
		}
	}
	slices.SortStableFunc(b.releases, func(x, y release) int { return cmp.Compare(x.key, y.key) })
	return b, nil
}

// release says when an earlier task loses its unique key; see holdfast.NewTask. The age is in microseconds.
type release struct {
	key   string
	age   int64
	ended bool
}

// releaseKeys removes unique keys from the tasks that no longer have a right to them.
func (s *inserter) releaseKeys(ctx context.Context, q store.Tx, releases []release) error {
	if len(releases) == 0 {
		return nil
	}
	n := len(releases)
	keys, ages, ended := make(pq.StringArray, n), make(pq.Int64Array, n), make(pq.BoolArray, n)
	for i, r := range releases {
		keys[i], ages[i], ended[i] = r.key, r.age, r.ended
	}
	_, err := s.exec(ctx, q, "insert_release", keys, ages, ended)
	return err
}

// tupleOf matches the context of an error about a wait for the transaction that wrote a row, and captures the name of
// the table. It matches the position of the row, because the server may translate the words around it.
var tupleOf = regexp.MustCompile(`\(\d+,\d+\).*\b(tasks|queues|key_order|kept_keys)\b`)

// keyHeld translates the error of an insert that has waited for a lock without success. It returns a
// *store.KeyHeldError if the insert has waited for a unique key. Otherwise the insert has waited for a lock on a table,
// or for another session that stores the same queue after a failover has lost it.
func keyHeld(err error) error {
	failure := pq.As(err, pqerror.LockNotAvailable)
	if failure == nil {
		return err
	}
	switch row := tupleOf.FindStringSubmatch(failure.Where); {
	case row == nil:
		return holdfast.WithHint(fmt.Errorf("another session has locked a table of the store, for example to create an index: %w", err),
			holdfast.Advice("try again when that session has ended"))
	case row[1] == "key_order":
		return &store.KeyHeldError{Ordered: true}
	case row[1] == "queues":
		return holdfast.WithHint(fmt.Errorf("another open transaction stores the same queue: %w", err),
			holdfast.Advice("try again when that transaction has ended"))
	}
	return new(store.KeyHeldError)
}

// text returns the arguments of the statement insert for any connection.
func (b batch) text() []any {
	return []any{b.types, b.queues, b.payloads, b.maxAttempts, b.delays, b.moments, b.grace}
}

// binary returns the same arguments in binary form, for the connections of package pgclient.
func (b batch) binary() []any {
	numbers := func(list pq.Int64Array) []byte { return bigints(len(list), func(i int) int64 { return list[i] }) }
	attempts := integers(len(b.maxAttempts), func(i int) int { return int(b.maxAttempts[i]) })
	strings := func(list pq.StringArray) []byte { return texts(len(list), func(i int) string { return list[i] }) }
	return []any{strings(b.types), strings(b.queues), strings(b.payloads), attempts, numbers(b.delays), numbers(b.moments), b.grace}
}

// statement returns the name and the arguments of a statement or, if the tasks are members of a plan, of its variant.
func (b *batch) statement(name string, args []any) (string, []any) {
	if b.plan == 0 {
		return name, args
	}
	return name + "_members", append(args, int64(b.plan))
}

// sized returns list, or n zero values if list is empty.
func sized[T any, L ~[]T](list L, n int) L {
	if len(list) == 0 {
		return make(L, n)
	}
	return list
}

// insertedRow is an outbox entry, or a list of tasks if its id is less than 1.
type insertedRow struct {
	ID    int64
	Queue string
	Tasks pq.Int64Array
}

func (r insertedRow) entry() store.OutboxEntry { return scan.Entry(r.ID, r.Queue, r.Tasks) }

func (s *inserter) insert(ctx context.Context, q store.Tx, b batch, args []any) (store.Inserted, error) {
	var rows []insertedRow
	name, args := b.statement("insert", args)
	err := s.all(ctx, q, &rows, name, args...)
	if err != nil {
		return store.Inserted{}, err
	}
	return insertedOf(rows, b.size)
}

// insertLocked inserts tasks if some have unique keys or are ordered. It first locks the keys of ordered tasks.
func (s *inserter) insertLocked(ctx context.Context, q store.Tx, b batch, tasks []holdfast.NewTask) (store.Inserted, error) {
	if len(b.orderedKeys) == 0 {
		return s.insertUnique(ctx, q, b)
	}
	tx := querying{s.database, q}
	places, undecided, err := flow.LockKeys(ctx, tx, tasks)
	if err != nil {
		return store.Inserted{}, err
	}
	b.places = make(pq.Int64Array, len(places))
	for i, place := range places {
		b.places[i] = int64(place)
	}
	inserted, err := s.insertUnique(ctx, q, b)
	if err != nil {
		return store.Inserted{}, err
	}
	for i, task := range inserted.Tasks {
		if tasks[i].Ordered && (task.Duplicate || tasks[i].Unique != "") { // the task behind this one may have to start
			undecided = append(undecided, tasks[i].Key)
		}
	}
	slices.Sort(undecided)
	return inserted, flow.MoveKeys(ctx, tx, slices.Compact(undecided), nil)
}

// insertUnique inserts the tasks whose unique keys are free, and finds the tasks that have the other keys. Before that,
// it removes keys from the tasks that no longer have a right to them.
func (s *inserter) insertUnique(ctx context.Context, q store.Tx, b batch) (store.Inserted, error) {
	if err := s.releaseKeys(ctx, q, b.releases); err != nil {
		return store.Inserted{}, err
	}
	inserted, err := s.insertFree(ctx, q, b)
	if err != nil {
		return store.Inserted{}, err
	}
	for attempt := 0; ; attempt++ {
		free, err := s.findHolders(ctx, q, b, &inserted)
		if err != nil {
			return inserted, err
		}
		if attempt == 0 && len(b.releases) > 0 && forgetDeleted(&inserted) {
			// A janitor may have deleted a task while releaseKeys waited for it. Then releaseKeys has not freed its key.
			if err = s.releaseKeys(ctx, q, b.releases); err == nil {
				free, err = s.findHolders(ctx, q, b, &inserted)
			}
		}
		if err != nil || len(free) == 0 {
			return inserted, err
		}
		if attempt == tries {
			return store.Inserted{}, fmt.Errorf("%w: the task with the unique key %q changes too often to be inserted or found", holdfast.ErrUnavailable, b.uniqueKeys[free[0]])
		}
		if err := s.insertFreed(ctx, q, b, free, &inserted); err != nil {
			return store.Inserted{}, err
		}
	}
}

// insertFree stores the tasks whose unique keys are free. The ids of the others are 0.
func (s *inserter) insertFree(ctx context.Context, q store.Tx, b batch) (store.Inserted, error) {
	var rows []insertedRow
	name, args := b.statement("insert_unique", append(b.text(), b.uniqueKeys, b.tags, b.keys, b.places, b.topics, b.traces, b.kept))
	if err := s.all(ctx, q, &rows, name, args...); err != nil {
		return store.Inserted{}, err
	}
	return insertedUniqueOf(rows, b.size)
}

// findHolders finds the tasks that have the unique keys of duplicates, and stores their ids in inserted. It returns the
// indexes of the tasks whose keys have become free.
func (s *inserter) findHolders(ctx context.Context, q store.Tx, b batch, inserted *store.Inserted) (free []int, err error) {
	var keys pq.StringArray
	for i, task := range inserted.Tasks {
		if task.ID == 0 {
			keys = append(keys, b.uniqueKeys[i])
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	var holders []scan.Keeper
	if err := s.all(ctx, q, &holders, "insert_holders", keys); err != nil {
		return nil, err
	}
	byKey := make(map[string]scan.Keeper, len(holders))
	for _, holder := range holders {
		byKey[holder.Key] = holder
	}
	for i, task := range inserted.Tasks {
		if task.ID != 0 {
			continue
		}
		if holder, ok := byKey[b.uniqueKeys[i]]; ok {
			inserted.Tasks[i] = holder.Inserted()
		} else {
			free = append(free, i)
		}
	}
	return free, nil
}

// forgetDeleted removes the holders that are deleted from the results, and reports whether there were any.
func forgetDeleted(inserted *store.Inserted) (found bool) {
	for i, task := range inserted.Tasks {
		if task.Duplicate && task.State == "" {
			inserted.Tasks[i], found = store.InsertedTask{}, true
		}
	}
	return found
}

// insertFreed inserts the tasks at the indexes, after their keys have become free.
func (s *inserter) insertFreed(ctx context.Context, q store.Tx, b batch, free []int, into *store.Inserted) error {
	part := b.part(free)
	for i, place := range part.places { // a task with a lower id may wait by now
		if ordered.Place(place) == ordered.Leads {
			part.places[i] = int64(ordered.Waits)
		}
	}
	inserted, err := s.insertFree(ctx, q, part)
	if err != nil {
		return err
	}
	for i, index := range free {
		into.Tasks[index] = inserted.Tasks[i]
	}
	into.Entries = append(into.Entries, inserted.Entries...)
	return nil
}

// part returns the tasks at the indexes.
func (b *batch) part(indexes []int) batch {
	return batch{
		size: len(indexes), grace: b.grace, unique: b.unique, plan: b.plan,
		types: pick(b.types, indexes), queues: pick(b.queues, indexes), payloads: pick(b.payloads, indexes),
		uniqueKeys: pick(b.uniqueKeys, indexes), keys: pick(b.keys, indexes), tags: pick(b.tags, indexes),
		places: pick(b.places, indexes), topics: pick(b.topics, indexes), traces: pick(b.traces, indexes), kept: pick(b.kept, indexes),
		maxAttempts: pick(b.maxAttempts, indexes), delays: pick(b.delays, indexes), moments: pick(b.moments, indexes),
	}
}

// pick returns the values at the indexes.
func pick[T any, L ~[]T](list L, indexes []int) L {
	if len(list) == 0 {
		return list
	}
	picked := make(L, len(indexes))
	for i, index := range indexes {
		picked[i] = list[index]
	}
	return picked
}

var errNoTasks = errors.New("the database returned no list of tasks")

// insertedOf returns the result of a statement that has stored every task.
func insertedOf(rows []insertedRow, size int) (store.Inserted, error) {
	if len(rows) == 0 || rows[0].ID != 0 || len(rows[0].Tasks) != size {
		return store.Inserted{}, errNoTasks
	}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, size)}
	for i, id := range rows[0].Tasks {
		inserted.Tasks[i].ID = holdfast.TaskID(id)
	}
	if len(rows) > 1 {
		inserted.Entries = scan.Map(rows[1:], insertedRow.entry)
	}
	return inserted, nil
}

// insertedUniqueOf is insertedOf for a statement that may skip tasks. The id of a skipped task is 0.
func insertedUniqueOf(rows []insertedRow, size int) (store.Inserted, error) {
	if len(rows) == 0 || rows[0].ID != -1 {
		return store.Inserted{}, errNoTasks
	}
	inserted, err := insertedOf(rows[1:], size)
	if err != nil {
		return store.Inserted{}, err
	}
	stored := make(map[holdfast.TaskID]bool, size)
	for _, id := range rows[0].Tasks {
		stored[holdfast.TaskID(id)] = true
	}
	for i, task := range inserted.Tasks {
		if !stored[task.ID] {
			inserted.Tasks[i].ID = 0
		}
	}
	return inserted, nil
}

// storeQueues stores the queues that this process has not stored before, in a transaction of its own. In the caller's
// transaction, a new queue would block all other inserts into it. If a failover loses a queue later, the statement that
// inserts tasks stores the queue again.
func (s *inserter) storeQueues(ctx context.Context, queues []string) error {
	var unseen pq.StringArray
	last := ""
	for _, queue := range queues {
		if queue == last {
			continue
		}
		if last = queue; !s.knowsQueue(queue) {
			unseen = append(unseen, queue)
		}
	}
	if len(unseen) == 0 {
		return nil
	}
	if _, err := s.exec(ctx, s.db, "insert_queues", unseen); err != nil {
		return err
	}
	for _, queue := range unseen {
		s.queues.Store(queue, true)
	}
	return nil
}

func (s *inserter) knowsQueue(queue string) bool {
	_, known := s.queues.Load(queue)
	return known
}

// CommittedOutbox implements store.Inserter.
func (s *inserter) CommittedOutbox(ctx context.Context, entries []int64) ([]store.OutboxEntry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	rows, err := list[insertedRow](ctx, s, "find committed outbox entries", "committed_outbox", numbers(entries))
	return scan.Map(rows, insertedRow.entry), err
}

// DeleteOutbox implements store.Inserter.
func (s *inserter) DeleteOutbox(ctx context.Context, entries []int64) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := s.change(ctx, "delete outbox entries", "delete_outbox", numbers(entries))
	return err
}

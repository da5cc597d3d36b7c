package flow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Order implements store.Order and, for ordered tasks, a part of store.Gates.ReleaseBlocked.
type Order struct {
	transactions transact.Transactions
	waitsTooLong func(error) bool // see Hooks

	mu      sync.Mutex
	sweptAt time.Time
	swept   string // the last key of the previous sweep step
}

// LockKeys locks the keys of the ordered tasks until the end of the transaction, and returns a place for each task. If
// no task is ordered, it does nothing. After the caller has stored the tasks, it must call MoveKeys for the keys in
// undecided.
func LockKeys(ctx context.Context, tx transact.Reader, tasks []holdfast.NewTask) (places []ordered.Place, undecided []string, err error) {
	list := ordered.Keys(tasks)
	if len(list) == 0 {
		return nil, nil, nil
	}
	var rows []struct {
		Key                           string
		Active, Dead, Doomed, Waiting bool
	}
	if err := tx.Read(ctx, "order_lock", &rows, list); err != nil {
		return nil, nil, err
	}
	keys := make(map[string]ordered.Key, len(rows))
	for _, row := range rows {
		keys[row.Key] = ordered.Key{Active: row.Active, Doomed: row.Doomed, Waiting: row.Waiting}
		if row.Waiting && !row.Active || row.Dead && !row.Doomed { // the row may be older than the lock
			undecided = append(undecided, row.Key)
		}
	}
	if len(keys) != len(list) {
		return nil, nil, fmt.Errorf("the database has locked %d of %d keys", len(keys), len(list))
	}
	return ordered.Places(tasks, keys), undecided, nil
}

// lockedKey is a key that the transaction has locked.
type lockedKey struct {
	Key    string
	Active holdfast.TaskID // 0 if none is active
	Dead   int             // see deathOf
}

// deathOf returns the value that the store records for a key: 1 if a dead task holds the key, 2 if that task also dooms
// the tasks behind it, and 0 otherwise.
func deathOf(state holdfast.State, dooms bool) int {
	switch {
	case state != holdfast.Dead:
		return 0
	case dooms:
		return 2
	}
	return 1
}

const (
	doomStep = 1000 // approximate number of tasks that a call of MoveKeys dooms
	maxEntry = 1000 // maximum number of tickets of an outbox entry
)

// MoveKeys starts the next tasks of the keys whose active tasks have ended. ended has tasks that the transaction has
// ended and that are not dead. MoveKeys waits for no other transaction. It leaves keys to ReleaseBlocked if another
// transaction has locked them, or if they have too much work for one call.
func MoveKeys(ctx context.Context, tx transact.Changer, keys []string, ended map[holdfast.TaskID]bool) error {
	if len(keys) == 0 {
		return nil
	}
	locked, err := lockFree(ctx, tx, keys)
	if err != nil {
		return err
	}
	if len(locked) < len(keys) {
		if _, err := tx.Change(ctx, "order_check", without(keys, locked)); err != nil {
			return err
		}
	}
	_, err = moveLocked(ctx, tx, locked, ended)
	return err
}

// lockFree locks the keys that exist and that no other transaction has locked, and returns them.
func lockFree(ctx context.Context, tx transact.Reader, keys []string) (locked []lockedKey, err error) {
	err = tx.Read(ctx, "order_skip_lock", &locked, keys)
	return locked, err
}

// without returns the keys that are not locked.
func without(keys []string, locked []lockedKey) []string {
	found := make(map[string]bool, len(locked))
	for _, row := range locked {
		found[row.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return found[key] })
}

// openKeys returns the keys that have open ordered tasks.
func openKeys(ctx context.Context, tx transact.Reader, keys []string) ([]string, error) {
	return readKeys(ctx, tx, "order_open", keys)
}

// readKeys returns the keys that a statement selects from a list of keys, sorted.
func readKeys(ctx context.Context, tx transact.Reader, name string, list []string) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	keys, err := transact.ListOf(ctx, tx, name, func(row struct{ Key string }) string { return row.Key }, list)
	slices.Sort(keys)
	return keys, err
}

// moveLocked is MoveKeys for locked keys. It returns the number of tasks that it has made due.
func moveLocked(ctx context.Context, tx transact.Changer, locked []lockedKey, ended map[holdfast.TaskID]bool) (int, error) {
	active, err := activeOf(ctx, tx, locked, ended)
	if err != nil {
		return 0, err
	}
	var free, dooming []string
	var deaths [3][]string // keys by the result of deathOf
	for _, row := range locked {
		task := active[row.Key]
		holds, dooms := task.Holds()
		if death := deathOf(task.State, dooms); holds && death != row.Dead {
			deaths[death] = append(deaths[death], row.Key)
		}
		switch {
		case dooms:
			dooming = append(dooming, row.Key)
		case !holds:
			free = append(free, row.Key)
		}
	}
	for death, keys := range deaths {
		if len(keys) == 0 {
			continue
		}
		if _, err := tx.Change(ctx, "order_dead", keys, death); err != nil {
			return 0, err
		}
	}
	started, err := startFirst(ctx, tx, free)
	if err != nil {
		return 0, err
	}
	doomed, err := doom(ctx, tx, dooming)
	return started + doomed, err
}

// activeOf returns the active tasks of the keys. It does not read tasks that are in ended.
func activeOf(ctx context.Context, tx transact.Reader, locked []lockedKey, ended map[holdfast.TaskID]bool) (map[string]ordered.Active, error) {
	active := make(map[string]ordered.Active, len(locked))
	var unknown []string
	for _, row := range locked {
		if ended[row.Active] {
			active[row.Key] = ordered.Active{State: holdfast.Done}
		} else {
			unknown = append(unknown, row.Key)
		}
	}
	if len(unknown) == 0 {
		return active, nil
	}
	var rows []struct {
		Key   string
		State holdfast.State
		Mark  ordered.Mark
		Waits bool
	}
	if err := tx.Read(ctx, "order_judge", &rows, unknown); err != nil {
		return nil, err
	}
	for _, row := range rows {
		active[row.Key] = ordered.Active{State: row.State, Mark: row.Mark, Waits: row.Waits}
	}
	return active, nil
}

// startFirst makes the first waiting task of each key active and due. It deletes keys without waiting tasks. It returns
// the number of started tasks.
func startFirst(ctx context.Context, tx transact.Changer, keys []string) (int, error) {
	moved, err := start(ctx, tx, keys, ordered.Ordered, 1)
	if err != nil || len(moved) == len(keys) {
		return len(moved), err
	}
	rest := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return moved[key] > 0 })
	ended, err := readKeys(ctx, tx, "order_end", rest)
	if err != nil {
		return 0, err
	}
	rest = slices.DeleteFunc(rest, func(key string) bool { _, found := slices.BinarySearch(ended, key); return found })
	return len(moved), leave(ctx, tx, rest)
}

// doom dooms the first waiting tasks of the keys, and makes them due. It returns their number.
func doom(ctx context.Context, tx transact.Changer, keys []string) (n int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	each := max(1, doomStep/len(keys))
	moved, err := start(ctx, tx, keys, ordered.Doomed, each)
	if err != nil {
		return 0, err
	}
	for _, doomed := range moved {
		n += doomed
	}
	left, err := readKeys(ctx, tx, "order_waiting", keys)
	if err != nil {
		return 0, err
	}
	return n, leave(ctx, tx, left)
}

// start makes the first n waiting tasks of each key due, or adds outbox entries for them. It skips tasks that other
// transactions have locked. It returns the number of started tasks of each key.
func start(ctx context.Context, tx transact.Changer, keys []string, mark ordered.Mark, n int) (moved map[string]int, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var rows []struct {
		Key string
		startedRow
	}
	if err := tx.Read(ctx, "order_start", &rows, keys, int(mark), n); err != nil || len(rows) == 0 {
		return nil, err
	}
	moved = make(map[string]int, len(rows))
	started, tasks := make([]string, len(rows)), make([]holdfast.TaskID, len(rows))
	ids := make([]startedRow, len(rows))
	for i, row := range rows {
		moved[row.Key]++
		started[i], tasks[i], ids[i] = row.Key, row.ID, row.startedRow
	}
	if err := storeEntries(ctx, tx, ids); err != nil {
		return nil, err
	}
	_, err = tx.Change(ctx, "order_started", started, tasks, mark == ordered.Ordered)
	return moved, err
}

// startedRow is a task that may start. If it is ticketed, it needs an outbox entry.
type startedRow struct {
	ID       holdfast.TaskID
	Queue    string
	Ticketed bool
}

// storeEntries stores the outbox entries that the tasks need.
func storeEntries(ctx context.Context, tx transact.Changer, started []startedRow) error {
	entries := make(map[string][]holdfast.TaskID) // by queue
	for _, row := range started {
		if row.Ticketed {
			entries[row.Queue] = append(entries[row.Queue], row.ID)
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(entries)) {
		for part := range slices.Chunk(entries[queue], maxEntry) {
			if _, err := tx.Change(ctx, "order_entry", queue, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave leaves keys to ReleaseBlocked. Before, it deletes the rows of tasks that no longer wait.
func leave(ctx context.Context, tx transact.Changer, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := tx.Change(ctx, "order_forget", keys); err != nil {
		return err
	}
	_, err := tx.Change(ctx, "order_check", keys)
	return err
}

// check processes the first keys that calls of MoveKeys have left, at most limit. Waiting in the result means that
// other transactions have locked some of them.
func (o *Order) check(ctx context.Context, limit int) (store.Released, error) {
	released := store.Released{Next: noNext}
	err := o.create(ctx, createStep)
	for n := 0; n < createTries && err != nil && o.waitsTooLong(err); n++ {
		err = o.create(ctx, 1)
	}
	if err != nil && !o.waitsTooLong(err) {
		return released, err
	}
	err = o.transactions.Transact(ctx, "start ordered tasks", func(ctx context.Context, tx transact.Transaction) error {
		var checks []struct {
			ID  int64
			Key string
		}
		if err := tx.Read(ctx, "order_checks", &checks, limit); err != nil || len(checks) == 0 {
			return err
		}
		keys := make([]string, len(checks))
		for i, check := range checks {
			keys[i] = check.Key
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		locked, err := lockFree(ctx, tx, keys)
		if err != nil {
			return err
		}
		if released.Tasks, err = moveLocked(ctx, tx, locked, nil); err != nil {
			return err
		}
		left, err := openKeys(ctx, tx, without(keys, locked))
		if err != nil {
			return err
		}
		if released.Waiting = len(left) > 0; released.Waiting {
			released.Next = lockedLook
		}
		full := len(checks) == limit
		if released.Tasks > 0 || full && len(left) < len(keys) {
			released.Next = 0
		}
		var done []holdfast.TaskID
		for _, check := range checks {
			if full || !slices.Contains(left, check.Key) {
				done = append(done, holdfast.TaskID(check.ID))
			}
		}
		if full && len(left) > 0 { // otherwise many locked keys would hide the others
			if _, err := tx.Change(ctx, "order_check", left); err != nil {
				return err
			}
		}
		_, err = tx.Change(ctx, "order_checked", done)
		return err
	})
	return released, err
}

// create stores at most n keys that have waiting tasks but no row. It chooses them at random. If another transaction is
// storing one of them, waitsTooLong is true for the error.
func (o *Order) create(ctx context.Context, n int) error {
	return o.transactions.Transact(ctx, "store keys", func(ctx context.Context, tx transact.Transaction) error {
		if _, err := tx.Change(ctx, "order_wait"); err != nil {
			return err
		}
		_, err := tx.Change(ctx, "order_create", n)
		return err
	})
}

const (
	createStep  = 100
	createTries = 5

	// lockedLook is the time until the next try if other transactions have locked some keys.
	lockedLook = 100 * time.Millisecond

	sweepEvery = 10 * time.Second
	sweepStep  = 2000
)

// sweepKeys makes a step of the sweep over the keys, at most once in sweepEvery.
func (o *Order) sweepKeys(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.sweptAt) < sweepEvery {
		return nil
	}
	o.sweptAt = time.Now()
	return o.transactions.Transact(ctx, "look for keys whose task has ended", func(ctx context.Context, tx transact.Transaction) error {
		var rows []struct{ Last string }
		if err := tx.Read(ctx, "order_sweep", &rows, o.swept, sweepStep); err != nil {
			return err
		}
		if _, err := tx.Change(ctx, "order_sweep_add", o.swept, rows[0].Last); err != nil {
			return err
		}
		o.swept = rows[0].Last
		return nil
	})
}

// byDeath sorts keys with a dead active task first.
func byDeath(a, b store.OrderedKey) int {
	switch {
	case a.State == holdfast.Dead && b.State != holdfast.Dead:
		return -1
	case a.State != holdfast.Dead && b.State == holdfast.Dead:
		return 1
	}
	return 0
}

// OrderOf implements store.Order.
func (o *Order) OrderOf(ctx context.Context, task holdfast.TaskID) (store.KeyPlace, error) {
	missing := fmt.Errorf("%w: task %s has no place in the order of a key", holdfast.ErrNotFound, task)
	row, err := transact.FirstOf[struct {
		store.KeyPlace
		First bool
	}](ctx, transact.Alone(o.transactions, "read the place of a task"), missing, "order_of", task)
	if row.First {
		row.Ahead = -1
	}
	return row.KeyPlace, err
}

// OrderedKeys implements store.Order.
func (o *Order) OrderedKeys(ctx context.Context, onlyDead bool, limit int) ([]store.OrderedKey, error) {
	var keys []store.OrderedKey
	if err := o.transactions.Read(ctx, "list keys with ordered tasks", "ordered_keys", &keys, onlyDead, limit); err != nil {
		return nil, err
	}
	slices.SortStableFunc(keys, byDeath) // the server may return the two lists in any order
	return keys[:min(len(keys), limit)], nil
}

package producer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// holdKey stores a task with the key in a transaction that stays open until release is called.
func (w *world) holdKey(key string) (release func()) {
	w.Helper()
	db, err := sql.Open("postgres", pgtest.URL(w))
	w.must(err)
	w.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(w.Context(), nil)
	w.must(err)
	w.Cleanup(func() { _ = tx.Rollback() })
	_, err = w.EnqueueTx(w.Context(), tx, keyed(key))
	w.must(err)
	return func() { w.must(tx.Commit()) }
}

func keyed(key string) holdfast.NewTask {
	return holdfast.NewTask{Type: "work", Unique: key}
}

// checkHeld checks that err is a KeyHeldError for the key, wraps ErrUnavailable, and has the key in its text.
func checkHeld(t *testing.T, err error, key string) {
	t.Helper()
	held := new(store.KeyHeldError)
	if !errors.As(err, &held) || !slices.Equal(held.Keys, []string{key}) || !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
		t.Errorf("got %v, want an error about the key %q", err, key)
	}
}

// If an open transaction holds a unique key, calls with that key fail, and no other call waits for them.
func TestAHeldKeyFailsOnlyItsOwnCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.holdKey("held")
	var stuck []<-chan answer
	for i := range 2 * inserters {
		stuck = append(stuck, w.enqueueAsync(t.Context(), keyed("held")))
		w.eventually("calls with the key are being stored", func() bool { return len(w.inserts.calls()) >= min(i+1, inserters) })
	}
	for i := range 20 { // enough calls that the two seconds of waiting for the key cannot hide a delay
		_, err := w.Enqueue(t.Context(), task(i))
		w.must(err)
	}
	free := w.enqueueAsync(t.Context(), keyed("free"))
	for _, call := range stuck {
		checkHeld(t, await(w, "the call ends", call).err, "held")
	}
	w.must(await(w, "the call with another key ends", free).err)
	w.must(w.Close())
	if n := w.count("tasks"); n != 21 {
		t.Errorf("%d tasks are stored, want 21", n)
	}
}

// Of many tasks, only those with a held key are refused, each with an error of its own. When the key is free, they can
// be stored.
func TestAHeldKeyRefusesNoNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	release := w.holdKey("held")
	list := []holdfast.NewTask{task(0), keyed("held"), task(2), keyed("free"), keyed("held")}
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	results, err := w.EnqueueMany(ctx, list)
	var wrong TaskErrors
	if !errors.As(err, &wrong) || len(wrong) != 2 || wrong[0].Index != 1 || wrong[1].Index != 4 {
		t.Fatalf("got %v", err)
	}
	for _, one := range wrong {
		checkHeld(t, one, "held")
	}
	for i, result := range results {
		if stored := result.ID != 0; stored != (list[i].Unique != "held") || result.Duplicate {
			t.Errorf("task %d: %+v", i, result)
		}
	}
	if got := w.payload(results[2].ID); len(results) != len(list) || got != "2" {
		t.Errorf("%d results; the third one's task is %s", len(results), got)
	}
	release()
	result, err := w.Enqueue(t.Context(), keyed("held"))
	if err != nil || !result.Duplicate {
		t.Errorf("after the commit: %+v, %v", result, err)
	}
	w.must(w.Close())
	if n := w.count("tasks"); n != 4 {
		t.Errorf("%d tasks are stored, want 4", n)
	}
}

// Many calls with the same held key end together: the store waits for the key once for each insert group, not for each
// call.
func TestAHeldKeyIsQueriedOnceInABatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.holdKey("held")
	const calls = 50
	var stuck []<-chan answer
	for range calls {
		stuck = append(stuck, w.enqueueAsync(t.Context(), keyed("held")))
	}
	free := w.enqueueAsync(t.Context(), keyed("free"))
	for _, call := range stuck {
		checkHeld(t, await(w, "the call ends", call).err, "held")
	}
	w.must(await(w, "the call with another key ends", free).err)
	w.must(w.Close())
	if n := len(w.inserts.calls()); n > calls/2 {
		t.Errorf("%d inserts for %d calls", n, calls)
	}
}

// keysHeld returns a KeyHeldError if one of the tasks has one of the keys. Without keys, it returns a KeyHeldError that
// names no key if one of the tasks has a unique key.
func keysHeld(tasks []holdfast.NewTask, keys ...string) error {
	for _, task := range tasks {
		if slices.Contains(keys, task.Unique) || len(keys) == 0 && task.Unique != "" {
			return &store.KeyHeldError{Keys: keys}
		}
	}
	return nil
}

// If the context of a call ends while its insert group waits for the key of another call, its task is not stored.
func TestACallThatHasEndedIsNotStoredLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error { return keysHeld(tasks, "held") }
	var first []<-chan answer
	for i := range inserters { // one after another, because one inserter could take both calls
		first = append(first, w.enqueueAsync(t.Context(), keyed(fmt.Sprint(i))))
		w.eventually("another inserter is busy", func() bool { return len(w.inserts.calls()) == i+1 })
	}
	ctx, cancel := context.WithCancel(t.Context())
	held, late := w.enqueueAsync(t.Context(), keyed("held")), w.enqueueAsync(ctx, keyed("late"))
	w.eventually("the others wait", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.keyed.waiting) == 2
	})
	w.inserts.gate <- struct{}{}
	w.eventually("one insert has both calls", func() bool { return len(w.inserts.calls()) == 3 })
	cancel()
	if err := await(w, "the call ends", late).err; !errors.Is(err, context.Canceled) {
		t.Errorf("the call whose context ended: %v", err)
	}
	close(w.inserts.gate)
	checkHeld(t, await(w, "the call with the held key ends", held).err, "held")
	for _, call := range first {
		w.must(await(w, "the first calls end", call).err)
	}
	w.must(w.Close())
	if n := w.count("tasks"); n != len(first) {
		t.Errorf("%d tasks are stored, want %d", n, len(first))
	}
}

// The wait for held keys is bounded even if the store cannot name them.
func TestTheWaitForHeldKeysIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error {
		<-time.After(w.heldLimit / 4)
		return keysHeld(tasks)
	}
	_, err := w.Enqueue(t.Context(), keyed("1"))
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "waits for keys") {
		t.Errorf("enqueue: %v", err)
	}
	results, err := w.EnqueueMany(t.Context(), []holdfast.NewTask{keyed("1"), task(1), keyed("2")})
	var refused TaskErrors
	if !errors.As(err, &refused) || len(refused) != 2 || !errors.Is(refused[1], holdfast.ErrUnavailable) || len(results) != 3 || results[1].ID == 0 {
		t.Errorf("enqueue many: %+v, %v", results, err)
	}
}

// If an open transaction has stored ordered tasks of a key, ordered calls with that key fail, and no other call waits.
func TestAHeldKeyOfOrderedTasksFailsOnlyItsOwnCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	db, err := sql.Open("postgres", pgtest.URL(w))
	w.must(err)
	w.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(w.Context(), nil)
	w.must(err)
	w.Cleanup(func() { _ = tx.Rollback() })
	ordered := func(key string) holdfast.NewTask { return holdfast.NewTask{Type: "work", Key: key, Ordered: true} }
	_, err = w.EnqueueTx(w.Context(), tx, ordered("held"))
	w.must(err)
	stuck := w.enqueueAsync(t.Context(), ordered("held"))
	w.eventually("the call with the key is being stored", func() bool { return len(w.inserts.calls()) >= 1 })
	for i := range 20 {
		_, err := w.Enqueue(t.Context(), task(i))
		w.must(err)
	}
	_, err = w.Enqueue(t.Context(), keyed("unique"))
	w.must(err)
	checkHeld(t, await(w, "the call ends", stuck).err, "held")
	results, err := w.EnqueueMany(t.Context(), []holdfast.NewTask{ordered("free"), ordered("held"), task(1), ordered("free")})
	var refused TaskErrors
	if !errors.As(err, &refused) || len(refused) != 1 || refused[0].Index != 1 || results[0].ID == 0 || results[3].ID <= results[0].ID {
		t.Errorf("enqueue many: %+v, %v", results, err)
	}
	w.must(tx.Commit())
	_, err = w.Enqueue(t.Context(), ordered("held"))
	w.must(err)
}

package producer

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// Many tasks of one transaction get several outbox entries. Each fits into a publish group.
func TestManyTasksOfATransactionHaveSeveralOutboxEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	const n = 2*maxInsertTasks + 17
	results, err := w.EnqueueTx(t.Context(), tx, tasks(n)...)
	w.must(err)
	w.must(tx.Commit())
	var entries, largest, all int
	w.must(pgtest.Admin(t).QueryRowContext(t.Context(), "select count(*), max(cardinality(task_ids)), sum(cardinality(task_ids)) from "+
		w.store.Schema()+".outbox").Scan(&entries, &largest, &all))
	if entries != 3 || largest > maxInsertTasks || all != n {
		t.Errorf("%d entries with %d tickets, the largest has %d", entries, all, largest)
	}
	for _, i := range []int{0, maxInsertTasks, n - 1} {
		if got := w.payload(results[i].ID); len(results) != n || got != fmt.Sprint(i) {
			t.Errorf("%d results; task %d is %s", len(results), i, got)
		}
	}
}

// All parts of a large call insert the unique keys in one order, so that two transactions with the same keys do not
// deadlock. The results are in the order of the call.
func TestEnqueueTxInsertsKeysInOneOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	list := tasks(2*maxInsertTasks + 10)
	for i := range list[10:] { // from the last key to the first
		list[10+i].Unique = fmt.Sprintf("%05d", len(list)-i)
	}
	list[len(list)-1].Unique = list[10].Unique
	var keys []string
	parts := 0
	w.inserts.seeTx = func(tasks []holdfast.NewTask) {
		parts++
		for _, task := range tasks {
			keys = append(keys, task.Unique)
		}
	}
	db, err := sql.Open("postgres", pgtest.URL(t))
	w.must(err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	results, err := w.EnqueueTx(t.Context(), tx, list...)
	w.must(err)
	w.must(tx.Commit())
	if len(keys) != len(list) || !slices.IsSorted(keys) || parts < 2 {
		t.Errorf("the keys of %d tasks are inserted in another order, in %d parts", len(keys), parts)
	}
	payloads, err := queryPayloads(w)
	w.must(err)
	last := len(list) - 1
	for i, result := range results[:last] {
		if want := fmt.Sprint(i); payloads[result.ID] != want || result.Duplicate {
			t.Fatalf("task %d: %+v with payload %s", i, result, payloads[result.ID])
		}
	}
	if got := results[last]; got.ID != results[10].ID || !got.Duplicate {
		t.Errorf("the duplicate: %+v, want the id %s", got, results[10].ID)
	}
}

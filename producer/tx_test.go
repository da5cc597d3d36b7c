package producer

import (
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// Many tasks of one transaction have several outbox entries, none of which is too large to be published at once.
func TestManyTasksOfATransactionHaveSeveralOutboxEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	const n = 2*batchSize + 17
	results, err := w.EnqueueTx(t.Context(), tx, tasks(n)...)
	w.must(err)
	w.must(tx.Commit())
	var entries, largest, all int
	w.must(pgtest.Admin(t).QueryRowContext(t.Context(), "select count(*), max(cardinality(task_ids)), sum(cardinality(task_ids)) from "+
		w.store.Schema()+".outbox").Scan(&entries, &largest, &all))
	if entries != 3 || largest > batchSize || all != n {
		t.Errorf("%d entries with %d tickets, the largest has %d", entries, all, largest)
	}
	for _, i := range []int{0, batchSize, n - 1} {
		if got := w.payload(results[i].ID); len(results) != n || got != fmt.Sprint(i) {
			t.Errorf("%d results; task %d is %s", len(results), i, got)
		}
	}
}

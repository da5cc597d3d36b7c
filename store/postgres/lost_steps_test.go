package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// unlisted returns the number of ticketed tasks, up to the id through, that are in no listed block.
func unlisted(t *testing.T, s *postgres.Store) int {
	t.Helper()
	return number(t, s, `select count(*) from %s.ticket_scan s join %[1]s.tasks t on t.id <= s.through
		where t.state = 'ready' and t.due_at is null
			and not exists (select from %[1]s.ticketed_blocks b where b.block = (t.id - 1) / 5000)`)
}

// Two processes make steps. After each step, every ticketed task up to the id through is in a listed block. Between
// steps, calls end midway, processes die, transactions stay open, dispatchers work, and the scan starts again.
func TestEachStepOfALookListsEveryTicket(t *testing.T) {
	t.Parallel()
	for seed := range uint64(slow.Pick(1, 6)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newScanWorld(t, seed).run(700)
		})
	}
}

// scanWorld is a database in which two processes scan for lost tickets. It executes one action at a time.
type scanWorld struct {
	*testing.T
	r         *rand.Rand
	processes [2]*postgres.Store
	scans     [2]*postgres.LostScan // the current call of each process
	open      []*sql.Tx
	counts    map[string]int
}

func newScanWorld(t *testing.T, seed uint64) *scanWorld {
	w := &scanWorld{T: t, r: rand.New(rand.NewPCG(seed, 21)), counts: map[string]int{}}
	w.processes[0] = pgtest.Open(t)
	w.processes[1] = pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: w.processes[0].Schema()})
	return w
}

func (w *scanWorld) run(actions int) {
	w.Cleanup(func() {
		for _, tx := range w.open {
			_ = tx.Rollback()
		}
	})
	kinds := []struct {
		name   string
		weight int
		do     func()
	}{
		{"store tasks", 4, func() { w.store(); w.end(len(w.open) - 1) }},
		{"store tasks in a transaction that stays open", 2, w.store},
		{"end a transaction", 3, func() { w.end(w.r.IntN(len(w.open)+1) - 1) }},
		{"end all transactions", 2, func() {
			for len(w.open) > 0 {
				w.end(0)
			}
		}},
		{"make tasks due", 3, func() { w.changeSome("due_at = now(), ticketed_at = null") }},
		{"finish tasks", 2, func() { w.changeSome("state = 'done', ticketed_at = null") }},
		{"lose tickets", 1, func() { w.changeSome("ticketed_at = now() - interval '1 hour'") }},
		{"dispatch", 4, w.dispatch},
		{"scan", 30, w.scan},
	}
	total := 0
	for _, kind := range kinds {
		total += kind.weight
	}
	for action := range actions {
		n, kind := w.r.IntN(total), 0
		for ; n >= kinds[kind].weight; kind++ {
			n -= kinds[kind].weight
		}
		kinds[kind].do()
		if n := unlisted(w.T, w.processes[0]); n > 0 {
			w.Fatalf("action %d, %s: %d ticketed tasks are in no listed block", action, kinds[kind].name, n)
		}
	}
	through, _ := progress(w.T, w.processes[0])
	w.Logf("read through %d; %v", through, w.counts)
	if through < 10*5000 || w.counts["ended midway"] == 0 || w.counts["began again"] == 0 || w.counts["dispatched"] == 0 {
		w.Errorf("read through %d; %v: too little for a result", through, w.counts)
	}
}

// store stores tasks with distant ids in a transaction that it leaves open.
func (w *scanWorld) store() {
	s := w.processes[0]
	tx := begin(w.T, s)
	w.open = append(w.open, tx)
	for range 1 + w.r.IntN(4) {
		skip := fmt.Sprintf("select setval('%s.tasks_id_seq', nextval('%[1]s.tasks_id_seq') + $1)", s.Schema())
		if _, err := tx.ExecContext(w.Context(), skip, w.r.IntN(4000)); err != nil {
			w.Fatal(err)
		}
		if _, err := s.InsertTx(w.Context(), tx, newTasks(1+w.r.IntN(3)), 0); err != nil {
			w.Fatal(err)
		}
	}
}

// end commits an open transaction; -1 means none.
func (w *scanWorld) end(n int) {
	if n < 0 {
		return
	}
	if err := w.open[n].Commit(); err != nil {
		w.Fatal(err)
	}
	w.open = append(w.open[:n], w.open[n+1:]...)
	change(w.T, w.processes[0], "delete from outbox")
}

// changeSome changes many or few of the ticketed tasks, anywhere or near the highest id.
func (w *scanWorld) changeSome(set string) {
	every, above := 1+w.r.IntN(4), w.r.IntN(2)*w.r.IntN(30_000)
	change(w.T, w.processes[0], "update tasks set "+set+` where state = 'ready' and due_at is null and id % $1 = $2
		and ($3 = 0 or id > (select max(id) from tasks) - $3)`, every, w.r.IntN(every), above)
}

func (w *scanWorld) dispatch() {
	publish := func(_ context.Context, due []store.Due) []bool {
		published := make([]bool, len(due))
		for i := range published {
			published[i] = true
		}
		return published
	}
	dispatched, err := w.processes[0].DispatchDue(w.Context(), store.Queues{}, 1+w.r.IntN(30), publish)
	if err != nil {
		w.Fatal(err)
	}
	w.counts["dispatched"] += dispatched.Marked
}

// scan begins or continues a call in one of the processes, ends the call at its limit, or kills the process.
func (w *scanWorld) scan() {
	var err error
	n := w.r.IntN(len(w.scans))
	defer func() {
		if err != nil {
			w.Fatal(err)
		}
	}()
	if w.scans[n] == nil {
		if w.r.IntN(12) == 0 {
			change(w.T, w.processes[0], "update ticket_scan set begun_at = now() - interval '25 hours'")
			w.counts["began again"]++
		}
		if err = prove(w.Context(), w.T, w.processes[0]); err != nil {
			return
		}
		w.scans[n], err = w.processes[n].BeginLostScan(w.Context(), time.Minute)
		return
	}
	var more bool
	switch w.r.IntN(15) {
	case 0: // the process dies
	case 1, 2:
		err = w.scans[n].End(w.Context())
		w.counts["ended midway"]++
	default:
		w.counts["steps"]++
		if more, err = w.scans[n].Step(w.Context()); err != nil || more {
			return
		}
		err = w.scans[n].End(w.Context())
	}
	w.scans[n] = nil
}

// Overlapping transactions do not delay the scan if each of them ends.
func TestALookPassesTransactionsThatOverlap(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	writer := func() (tx *sql.Tx, id int) {
		tx = begin(t, s)
		inserted, err := s.InsertTx(t.Context(), tx, newTasks(1), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return tx, int(inserted.Tasks[0].ID)
	}
	overlap := func(rounds int) (ids []int) {
		open, id := writer()
		for range rounds {
			insert(t, s, 1)
			findLost(t, s)
			next, nextID := writer()
			if err := open.Commit(); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			open, id = next, nextID
		}
		findLost(t, s)
		if through, _ := progress(t, s); through >= id {
			t.Errorf("read through %d, but task %d is not committed yet", through, id)
		}
		if err := open.Commit(); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	ids := overlap(2)
	last := ids[len(ids)-1]
	if through, _ := progress(t, s); through < last {
		t.Errorf("read through %d, want at least %d: all transactions of that time have ended", through, last)
	}
	// The scan ignores the earlier bound of another server, because after a failover the server may assign the same ids
	// again.
	s.SetServerStart("clock_timestamp()")
	before, _ := progress(t, s)
	overlap(2)
	if through, _ := progress(t, s); through > before {
		t.Errorf("read through %d, want %d: the server has changed", through, before)
	}
}

// A step must see what a dispatcher has marked while the step was waiting. An old snapshot would not show it.
func TestAStepReadsWhatIsCommitted(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	tx := begin(t, s)
	before := "set transaction isolation level repeatable read"
	for _, text := range []string{before, s.Text("steps_settings"), s.Text("unticket_lost_settings")} {
		if _, err := tx.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	var level string
	if err := tx.QueryRow("show transaction_isolation").Scan(&level); err != nil || level != "read committed" {
		t.Errorf("the isolation level of a step is %q, %v", level, err)
	}
}

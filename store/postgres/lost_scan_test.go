package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// prove makes a sentinel of four minutes ago a proof for one scan.
func prove(ctx context.Context, t *testing.T, s *postgres.Store) error {
	t.Helper()
	_, err := pgtest.Admin(t).ExecContext(ctx, fmt.Sprintf(`update %s.queues set held_through = now() - interval '4 minutes',
		held_at = now() - interval '2 minutes', drained_through = now(), drained_at = now()`, s.Schema()))
	return err
}

// findLost calls UnticketLost with a proof and a slack of one minute, and returns the number of lost tickets.
func findLost(t *testing.T, s *postgres.Store) int {
	t.Helper()
	for began := time.Now(); ; {
		err := prove(t.Context(), t, s)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := s.UnticketLost(t.Context(), time.Minute)
		switch {
		case err == nil:
			return n
		case !errors.Is(err, holdfast.ErrUnavailable) || time.Since(began) > slow.Patience():
			t.Fatal(err)
		} // the server has ended a transaction that was idle for seconds on a busy machine
	}
}

// progress returns the last id that the scan has read, and the number of listed blocks.
func progress(t *testing.T, s *postgres.Store) (through, blocks int) {
	t.Helper()
	through = number(t, s, "select through from %s.ticket_scan")
	return through, number(t, s, "select count(*) from %s.ticketed_blocks")
}

// number returns the number that a query selects. %s in the query is the schema.
func number(t *testing.T, s *postgres.Store, query string) (n int) {
	t.Helper()
	if err := pgtest.Admin(t).QueryRow(fmt.Sprintf(query, s.Schema())).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func newTasks(n int) []holdfast.NewTask {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 100}
	}
	return tasks
}

// A scan reads final, running and waiting tasks only once. A task that waits for a year does not delay the scan.
func TestALookReadsWhatMayBeTicketedOnly(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	later := newTasks(1)
	later[0].Delay = 365 * 24 * time.Hour
	if _, err := s.Insert(t.Context(), later, 0); err != nil {
		t.Fatal(err)
	}
	tickets := insert(t, s, 3)
	if n := findLost(t, s); n != 0 {
		t.Fatalf("%d tickets are lost", n)
	}
	last := int(tickets[2].Task)
	if through, blocks := progress(t, s); through != last || blocks != 1 {
		t.Errorf("with three ticketed tasks: read through %d, %d blocks are listed; want %d, 1", through, blocks, last)
	}
	if _, err := s.Claim(t.Context(), registerWorker(t, s), store.AnyOf("t"), tickets, store.IntoExecutors); err != nil {
		t.Fatal(err)
	}
	findLost(t, s)
	if through, blocks := progress(t, s); through != last || blocks != 0 {
		t.Errorf("with running tasks: read through %d, %d blocks are listed; want %d, 0", through, blocks, last)
	}
}

// A scan finds the later ticket of a task that it has already read. The next scan continues at the end of the previous
// one, and then starts again.
func TestALookFindsWhatIsTicketedAgain(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	tickets := scattered(t, s, 1)
	change(t, s, "delete from outbox")
	change(t, s, "update tasks set due_at = now(), ticketed_at = null")
	findLost(t, s)
	if through, blocks := progress(t, s); through != int(tickets[len(tickets)-1].Task) || blocks != 0 {
		t.Fatalf("without ticketed tasks: read through %d, %d blocks are listed", through, blocks)
	}
	dispatched, err := s.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		published := make([]bool, len(due))
		for i := range published {
			published[i] = true
		}
		return published
	})
	if err != nil || dispatched.Marked != len(tickets) {
		t.Fatalf("published %+v, %v", dispatched, err)
	}
	if _, blocks := progress(t, s); blocks == 0 {
		t.Error("no block is listed although tasks are ticketed again")
	}
	change(t, s, "update tasks set ticketed_at = now() - interval '1 hour'")
	change(t, s, "update ticket_scan set resume = 1")
	if n := findLost(t, s); n != len(tickets)-1 {
		t.Errorf("%d tickets are lost after the first block, want %d", n, len(tickets)-1)
	}
	if n := findLost(t, s); n != 1 {
		t.Errorf("%d tickets are lost in the first block, want 1", n)
	}
}

// A transaction that commits late stores a task with an id below others that were read. The scan finds the task
// nevertheless.
func TestALookDoesNotPassTransactionsThatAreOpen(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	early := begin(t, s)
	inserted, err := s.InsertTx(t.Context(), early, newTasks(1), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other := ticketed(t, s, time.Hour, false)
	if n := findLost(t, s); n != 1 {
		t.Errorf("during an open transaction %d tickets are lost, want 1", n)
	}
	if through, _ := progress(t, s); through >= int(inserted.Tasks[0].ID) {
		t.Errorf("read through %d, but task %s is not committed yet", through, inserted.Tasks[0].ID)
	}
	if err := early.Commit(); err != nil {
		t.Fatal(err)
	}
	change(t, s, "delete from outbox")
	change(t, s, "update tasks set due_at = null, ticketed_at = now() - interval '1 hour' where id = $1", int64(inserted.Tasks[0].ID))
	if n := findLost(t, s); n != 1 {
		t.Errorf("after the commit %d tickets are lost, want 1", n)
	}
	if through, _ := progress(t, s); through < int(other.Task) {
		t.Errorf("without open transactions: read through %d, want %d", through, other.Task)
	}
}

func begin(t *testing.T, s *postgres.Store) *sql.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// The scan starts again once a day, and after the clock was set back.
func TestALookBeginsAgainEveryDay(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	insert(t, s, 2)
	change(t, s, "update tasks set state = 'done', ticketed_at = null")
	for _, begun := range []string{"now() - interval '25 hours'", "now() + interval '2 hours'"} {
		findLost(t, s)
		// This simulates a change by hand, or by a build without the list.
		change(t, s, "update tasks set state = 'ready', due_at = null, ticketed_at = now() - interval '1 hour' where id = 1")
		change(t, s, "delete from outbox")
		if n := findLost(t, s); n != 0 {
			t.Fatalf("%d tickets are lost, want 0: the scan has read old tasks again", n)
		}
		change(t, s, "update ticket_scan set begun_at = "+begun)
		if n := findLost(t, s); n != 1 {
			t.Errorf("with begun_at %s: %d tickets are lost, want 1", begun, n)
		}
	}
}

// While callers, workers and scans for lost tickets run, the test reads tasks with a ticket. Each of them is in one of the
// blocks of ids that the next scan reads.
func TestALookListsEveryTicket(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	var group sync.WaitGroup
	repeat := func(seed uint64, f func(r *rand.Rand) error) {
		group.Go(func() {
			for r := rand.New(rand.NewPCG(seed, 3)); ctx.Err() == nil; {
				if err := f(r); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for seed := range uint64(3) {
		repeat(seed, func(r *rand.Rand) error { // stores tasks with distant ids, and commits early or late
			tx, err := s.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("select setval('%s.tasks_id_seq', nextval('%[1]s.tasks_id_seq') + $1)", s.Schema()), r.IntN(6000)); err != nil {
				return err
			}
			if _, err := s.InsertTx(ctx, tx, newTasks(1+r.IntN(3)), 0); err != nil {
				return err
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			return tx.Commit()
		})
	}
	anyTickets := func() (tickets []message.Ticket, err error) {
		page, err := s.List(ctx, store.Filter{States: []holdfast.State{holdfast.Ready}, Limit: 50})
		for _, task := range page.Tasks {
			tickets = append(tickets, message.Ticket{Task: task.ID, Attempt: task.Attempt})
		}
		return tickets, err
	}
	repeat(10, func(*rand.Rand) error { // claims tasks and hands them back
		tickets, err := anyTickets()
		if err != nil {
			return err
		}
		claims, err := s.Claim(ctx, worker, store.AnyOf("t"), tickets, store.IntoExecutors)
		if err != nil {
			return err
		}
		var moves []holdfast.Transition
		for _, c := range claims {
			if c.Verdict == store.Claimed {
				move, err := holdfast.Settle(*c.Task, holdfast.Interrupted(nil), c.Now, holdfast.DefaultPolicy())
				if err != nil {
					return err
				}
				moves = append(moves, move)
			}
		}
		_, err = s.Apply(ctx, moves)
		return err
	})
	repeat(11, func(r *rand.Rand) error {
		tickets, err := anyTickets()
		if err == nil && len(tickets) > 0 {
			_, err = s.Unticket(ctx, tickets[:1+r.IntN(len(tickets))])
		}
		return err
	})
	for seed := range uint64(2) {
		repeat(20+seed, func(*rand.Rand) error {
			_, err := s.DispatchDue(ctx, store.Queues{}, 20, func(_ context.Context, due []store.Due) []bool {
				published := make([]bool, len(due))
				for i := range published {
					published[i] = true
				}
				return published
			})
			return err
		})
		repeat(30+seed, func(*rand.Rand) error {
			if err := prove(ctx, t, s); err != nil {
				return err
			}
			_, _, err := s.UnticketLost(ctx, time.Minute)
			return err
		})
	}
	comparisons, through := 0, 0
	for ctx.Err() == nil {
		var missing int
		err := pgtest.Admin(t).QueryRowContext(ctx, fmt.Sprintf(`
			select s.through, count(t.id) from %s.ticket_scan s left join %[1]s.tasks t on t.id <= s.through
				and t.state = 'ready' and t.due_at is null
				and not exists (select from %[1]s.ticketed_blocks b where b.block = (t.id - 1) / 5000)
			group by s.through`, s.Schema())).Scan(&through, &missing)
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if missing > 0 {
			t.Errorf("%d ticketed tasks up to %d are in no listed block", missing, through)
			cancel()
		}
		comparisons++
		if time.Since(began) > 4*time.Second && comparisons >= 10 && through >= 50_000 {
			cancel()
		}
	}
	group.Wait()
	if comparisons < 10 || through < 50_000 {
		t.Errorf("%d comparisons, read through %d: too few for a result", comparisons, through)
	}
}

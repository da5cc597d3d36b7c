package producer

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// begin begins a transaction of a caller.
func (w *world) begin() *sql.Tx {
	w.Helper()
	tx, err := pgtest.Admin(w).BeginTx(w.Context(), nil)
	w.must(err)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// looks waits until the producer has made n more queries for commits.
func (w *world) looks(n int) {
	w.Helper()
	n += w.inserts.looks()
	w.eventually("the producer looks for the commit", func() bool { return w.inserts.looks() >= n })
}

// patient is an option that makes a producer watch transactions as long as a test takes.
func patient(w *world) { w.commits.limit = slow.Patience() }

// A producer publishes the tickets of a transaction after its commit, and not before. No janitor runs.
func TestTicketsOfATransactionArePublishedAtItsCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	patient(w)
	tx := w.begin()
	results, err := w.EnqueueTx(t.Context(), tx, tasks(3)...)
	w.must(err)
	w.looks(3)
	if n := w.publishes.calls(); n > 0 {
		t.Errorf("%d publish groups before the commit", n)
	}
	w.must(tx.Commit())
	w.eventually("the outbox entry is deleted", func() bool { return w.count("outbox") == 0 })
	tickets, _ := w.take(w.main())
	want := []message.Ticket{{Task: results[0].ID, Attempt: 1}, {Task: results[1].ID, Attempt: 1}, {Task: results[2].ID, Attempt: 1}}
	if !slices.Equal(tickets, want) {
		t.Errorf("published %v, want %v", tickets, want)
	}
}

// A transaction that is rolled back publishes nothing, and the producer stops watching it. Another transaction is
// published.
func TestARollbackPublishesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.commits.limit = slow.Times(2 * time.Second)
	undone, kept := w.begin(), w.begin()
	_, err := w.EnqueueTx(t.Context(), undone, tasks(2)...)
	w.must(err)
	results, err := w.EnqueueTx(t.Context(), kept, task(7))
	w.must(err)
	w.must(undone.Rollback())
	w.looks(2)
	w.must(kept.Commit())
	w.eventually("no transaction is watched", func() bool { return w.watched() == 0 })
	w.must(w.Close())
	if tickets, _ := w.take(w.main()); !slices.Equal(tickets, []message.Ticket{{Task: results[0].ID, Attempt: 1}}) {
		t.Errorf("published %v, want only task %s", tickets, results[0].ID)
	}
}

// The database ends the connection of the producer between the commit and the query. The producer connects again and
// publishes the tickets.
func TestALostConnectionDelaysTheLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	patient(w)
	blocked, committed := make(chan struct{}), make(chan struct{})
	looks, ended := 0, 0
	w.inserts.seeLook = func() {
		if looks++; looks != 2 { // the first query has given the producer a connection
			return
		}
		close(blocked)
		<-committed
		if err := pgtest.Admin(t).QueryRowContext(t.Context(), // the session of the first query
			"select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid() and query like '%publish_after from \"' || $1 || '\".outbox%'",
			w.store.Schema()).Scan(&ended); err != nil {
			t.Error(err)
		}
	}
	tx := w.begin()
	_, err := w.EnqueueTx(t.Context(), tx, tasks(2)...)
	w.must(err)
	await(w, "the second look", blocked)
	w.must(tx.Commit())
	close(committed)
	w.eventually("the outbox entry is deleted", func() bool { return w.count("outbox") == 0 })
	w.must(w.Close())
	if tickets, _ := w.take(w.main()); len(tickets) != 2 || ended == 0 {
		t.Errorf("published %d tickets, want 2; %d sessions ended", len(tickets), ended)
	}
}

// If the broker accepts nothing, the tickets stay in the outbox for the janitors, and the producer stops watching.
func TestTicketsOfATransactionStayInTheOutboxIfTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.publishes.refuse = func(broker.Message) bool { return true }
	tx := w.begin()
	results, err := w.EnqueueTx(t.Context(), tx, task(1))
	w.must(err)
	w.must(tx.Commit())
	w.eventually("the producer publishes", func() bool { return w.publishes.calls() > 0 })
	w.eventually("no transaction is watched", func() bool { return w.watched() == 0 })
	var given []store.OutboxEntry
	w.eventually("a janitor gets the entry", func() bool {
		_, err := w.store.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
			given = entries
			return make([]bool, len(entries))
		})
		w.must(err)
		return len(given) > 0
	})
	if len(given) != 1 || given[0].Tickets[0].Task != results[0].ID {
		t.Errorf("the janitor got %v", given)
	}
}

// Close publishes committed tickets. It does not wait for an open transaction, whose tickets a janitor publishes later.
func TestCloseDoesNotWaitForTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	patient(w)
	open, committed := w.begin(), w.begin()
	block, blocked := make(chan struct{}), make(chan struct{})
	w.inserts.seeLook = sync.OnceFunc(func() { close(blocked); <-block })
	_, err := w.EnqueueTx(t.Context(), open, task(1))
	w.must(err)
	<-blocked
	results, err := w.EnqueueTx(t.Context(), committed, task(2))
	w.must(err)
	w.must(committed.Commit())
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	w.eventually("Close has begun", func() bool {
		select {
		case <-w.commits.closing:
			return true
		default:
			return false
		}
	})
	close(block)
	w.must(await(w, "Close", closed))
	w.must(open.Commit())
	if tickets, _ := w.take(w.main()); !slices.Equal(tickets, []message.Ticket{{Task: results[0].ID, Attempt: 1}}) {
		t.Errorf("published %v, want only task %s", tickets, results[0].ID)
	}
	if n := w.count("outbox"); n != 1 {
		t.Errorf("%d outbox entries are left, want that of the open transaction", n)
	}
}

// watched returns the number of outbox entries that the producer watches.
func (w *world) watched() int { return w.commits.size() }

func (w *commitWatch) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looking {
		return 0
	}
	return max(1, len(w.entries))
}

// slowTransactions is a broker and a store whose transactions are committed by a test. The zero value has no
// transactions.
type slowTransactions struct {
	store.Inserter
	mu        sync.Mutex
	entries   []store.OutboxEntry
	committed map[int64]bool
	looks     []int // number of entries of each query
	graces    map[int64]time.Duration
	published []message.Ticket
	fail      error // error of each query
	takes     time.Duration
}

func newSlowTransactions() (*slowTransactions, *Producer) {
	s := &slowTransactions{committed: make(map[int64]bool), graces: make(map[int64]time.Duration)}
	return s, mustNew(Options{Store: s, Broker: s, Topology: broker.NewTopology("p", 1, "test")})
}

func (s *slowTransactions) InsertTx(_ context.Context, _ store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := store.OutboxEntry{ID: int64(len(s.entries) + 1), Queue: tasks[0].Queue}
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks))}
	for i := range tasks {
		inserted.Tasks[i].ID = holdfast.TaskID(1000*entry.ID + int64(i))
		entry.Tickets = append(entry.Tickets, message.Ticket{Task: inserted.Tasks[i].ID, Attempt: 1})
	}
	s.graces[entry.ID] = grace
	inserted.Entries = []store.OutboxEntry{entry}
	s.entries = append(s.entries, entry)
	return inserted, nil
}

func (s *slowTransactions) CommittedOutbox(_ context.Context, ids []int64) (found []store.OutboxEntry, err error) {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, len(ids))
	if s.fail != nil {
		return nil, s.fail
	}
	for _, id := range ids {
		if s.committed[id] {
			found = append(found, s.entries[id-1])
		}
	}
	return found, nil
}

// last returns the id of the last outbox entry.
func (s *slowTransactions) last() int64 { return int64(len(s.entries)) }

func (s *slowTransactions) DeleteOutbox(context.Context, []int64) error { return nil }

func (s *slowTransactions) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		decoded, err := message.Decode(m.Body)
		if err != nil {
			return make([]broker.Outcome, len(messages)), err
		}
		s.published = append(s.published, decoded.Tickets...)
	}
	return slices.Repeat([]broker.Outcome{broker.Stored}, len(messages)), nil
}

// A transaction that stays open for an hour costs a few dozen queries, all in its first second.
func TestAnOpenTransactionCostsABoundedNumberOfLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlowTransactions()
		if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(txGrace)
		synctest.Wait()
		n := len(s.looks)
		if n < 20 || n > 50 {
			t.Errorf("%d looks in the first second", n)
		}
		time.Sleep(time.Hour)
		if len(s.looks) > n || p.commits.size() > 0 {
			t.Errorf("%d looks after the first second, %d entries", len(s.looks)-n, p.commits.size())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Soon after a commit, the ticket is published. The delay is proportional to how long the transaction was open.
func TestACommitIsNoticedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlowTransactions()
		for open := time.Duration(0); open < txGrace*3/4; open += 7 * time.Millisecond {
			s.published = nil
			if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(open)
			s.mu.Lock()
			s.committed[s.last()] = true
			s.mu.Unlock()
			time.Sleep(lookInterval + open/lookShare)
			synctest.Wait()
			if len(s.published) != 1 || s.graces[s.last()] != txGrace {
				t.Errorf("open for %s: %d tickets are published, grace %s", open, len(s.published), s.graces[s.last()])
			}
			time.Sleep(time.Second)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Thousands of open transactions share queries of bounded size. Entries that the producer cannot watch have no grace.
func TestManyOpenTransactionsShareLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlowTransactions()
		const more = 500
		for i := range maxWatched + more {
			if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil {
				t.Fatal(err)
			}
			if grace, want := s.graces[s.last()], txGrace; i >= maxWatched && grace != 0 || i < maxWatched && grace != want {
				t.Fatalf("the grace of call %d is %s", i, grace)
			}
		}
		time.Sleep(2 * txGrace)
		synctest.Wait()
		if most := int(txGrace / lookInterval); len(s.looks) > most || slices.Max(s.looks) > maxLookEntries {
			t.Errorf("%d looks with at most %d entries; want at most %d and %d", len(s.looks), slices.Max(s.looks), most, maxLookEntries)
		}
		if p.commits.size() > 0 {
			t.Errorf("%d entries are watched", p.commits.size())
		}
		if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil || s.graces[s.last()] != txGrace {
			t.Errorf("after the others: grace %s, %v", s.graces[s.last()], err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A database that does not answer costs one query at a time. If it answers again within the grace, the tickets are
// published. If it does not, Close does not query for every entry.
func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlowTransactions()
		s.fail, s.takes = errFault, 100*time.Millisecond
		for range 2 {
			if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.committed[s.last()] = true
			s.mu.Unlock()
		}
		time.Sleep(txGrace / 2)
		synctest.Wait()
		if n := len(s.looks); n < 2 || n > 6 || len(s.published) > 0 {
			t.Errorf("%d looks, published %v", n, s.published)
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		time.Sleep(txGrace / 2)
		synctest.Wait()
		if len(s.published) != 2 {
			t.Errorf("published %v, want two tickets", s.published)
		}
		s.mu.Lock()
		s.fail = errFault
		s.mu.Unlock()
		for range 10 * maxLookEntries {
			if _, err := p.EnqueueTx(t.Context(), nil, task(1)); err != nil {
				t.Fatal(err)
			}
		}
		n := len(s.looks)
		if err := p.Close(); err != nil || len(s.looks)-n > 2 {
			t.Errorf("%v after %d looks", err, len(s.looks)-n)
		}
	})
}

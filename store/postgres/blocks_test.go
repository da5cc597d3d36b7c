package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

var anna = store.Actor{Name: "anna", Surface: store.CommandLine}

// startBlock blocks tickets at a gate in a transaction that is not committed.
func startBlock(t *testing.T, s *postgres.Store, gate store.ID, tickets ...message.Ticket) *sql.Tx {
	t.Helper()
	tx, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	tasks, attempts := make(pq.Int64Array, len(tickets)), make(pq.Int64Array, len(tickets))
	for i, ticket := range tickets {
		tasks[i], attempts[i] = int64(ticket.Task), int64(ticket.Attempt)
	}
	if _, err := tx.Exec(s.Text("block"), tasks, attempts, int64(gate)); err != nil {
		t.Fatal(err)
	}
	return tx
}

// insertKeyed stores a task for each key.
func insertKeyed(t *testing.T, s *postgres.Store, keys ...string) []message.Ticket {
	t.Helper()
	tasks := make([]holdfast.NewTask, len(keys))
	for i, key := range keys {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Key: key}
	}
	inserted, err := s.Insert(t.Context(), tasks, 0)
	if err != nil {
		t.Fatal(err)
	}
	return inserted.Entries[0].Tickets
}

// release calls ReleaseBlocked until it has made n tasks due.
func release(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d tasks become due", n), func() error {
		released, err := s.ReleaseBlocked(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n -= released.Tasks; n > 0 {
			return fmt.Errorf("%d are missing", n)
		}
		return nil
	})
}

// A change of a gate does not wait for workers that are blocking tasks there. If the gate opens while they block tasks,
// these tasks are released.
func TestChangesOfGatesDoNotWaitForBlocks(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	registerWorker(t, s)
	tickets, subject := insert(t, s, 2), store.Subject{Type: "t"}
	paused, err := s.Pause(t.Context(), anna, store.PauseFor(subject, 0))
	if err != nil {
		t.Fatal(err)
	}
	limit := store.Limit{Scope: store.Scope{Subject: subject}, Concurrency: 1}
	limited, err := s.SetLimit(t.Context(), anna, limit.Change())
	if err != nil {
		t.Fatal(err)
	}
	atPause, atLimit := startBlock(t, s, paused.After.ID, tickets[0]), startBlock(t, s, limited.After.ID, tickets[1])
	if _, err := s.Pause(t.Context(), anna, store.PauseFor(subject, 0)); err != nil {
		t.Error("pause again:", err)
	}
	limit.Concurrency = 2
	if _, err := s.SetLimit(t.Context(), anna, limit.Change()); err != nil {
		t.Error("change the limit:", err)
	}
	if _, err := s.Resume(t.Context(), anna, subject); err != nil {
		t.Error("resume:", err)
	}
	if _, err := s.UnsetLimit(t.Context(), anna, limit.Scope); err != nil {
		t.Error("unset the limit:", err)
	}
	for range 3 { // the gates have opened, and no blocked task is visible
		if released, err := s.ReleaseBlocked(t.Context(), 100); err != nil || released.Tasks != 0 {
			t.Fatalf("released %d tasks, %v", released.Tasks, err)
		}
	}
	if err := errors.Join(atPause.Commit(), atLimit.Commit()); err != nil {
		t.Fatal(err)
	}
	release(t, s, len(tickets))
	eventually(t, "the gates are deleted", func() error {
		var n int
		if _, err := s.ReleaseBlocked(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		err := callersDB(t).QueryRow("select (select count(*) from " + s.Schema() + ".gates) + (select count(*) from " + s.Schema() + ".buckets)").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d gates and buckets are left", n)
		}
		return err
	})
}

// Workers that block tasks of the same buckets wait neither for each other nor for the process that gives permits.
func TestBlocksAndPermitsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	registerWorker(t, s)
	set, err := s.SetLimit(t.Context(), anna, store.Limit{Scope: store.Scope{Per: store.PerKey}, Concurrency: 1}.Change())
	if err != nil {
		t.Fatal(err)
	}
	limit, tickets := set.After, insertKeyed(t, s, "a", "b", "a", "b", "a", "b")
	if err := s.Block(t.Context(), limit.ID, tickets[:2]); err != nil {
		t.Fatal(err)
	}
	first := startBlock(t, s, limit.ID, tickets[2], tickets[3])
	second := startBlock(t, s, limit.ID, tickets[5], tickets[4])
	release(t, s, 2) // the tasks that are certainly blocked
	if err := errors.Join(second.Commit(), first.Commit()); err != nil {
		t.Fatal(err)
	}
	change(t, s, "update tasks set state = 'done', due_at = null, finished_at = now() where id = any(array["+tickets[0].Task.String()+", "+tickets[1].Task.String()+"])")
	release(t, s, 2)
}

// If a task loses its permit while a claim waits for a lock, the claim does not take the task, although it has become
// due again.
func TestAClaimThatWaitsTakesNoTaskThatLostItsPermit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one attempt number", "several"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := named(t, postgres.Options{})
			stuck, other := registerWorker(t, s), registerWorker(t, s)
			set, err := s.SetLimit(t.Context(), anna, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "t"}}, Concurrency: 1}.Change())
			if err != nil {
				t.Fatal(err)
			}
			limit, tickets := set.After, insertKeyed(t, s, "free", "x", "y")
			change(t, s, "update tasks set type = 'free' where id = "+tickets[0].Task.String())
			page := tickets[:2]
			if name == "several" {
				change(t, s, "update tasks set attempt = 2 where id = "+tickets[0].Task.String())
				page = []message.Ticket{{Task: tickets[0].Task, Attempt: 2}, tickets[1]}
			}
			if err := s.Block(t.Context(), limit.ID, tickets[1:]); err != nil {
				t.Fatal(err)
			}
			release(t, s, 1)
			if _, err := s.Claim(t.Context(), stuck, store.AnyOf("unknown"), page, store.IntoExecutors); err != nil {
				t.Fatal(err) // from now on the store knows the gates
			}
			lock, err := callersDB(t).Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Rollback() }()
			if _, err := lock.Exec("select from "+s.Schema()+".tasks where id = $1 for update", int64(tickets[0].Task)); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				claims []store.Claim
				err    error
			}
			claimed := make(chan answer, 1)
			go func() {
				claims, err := s.Claim(t.Context(), stuck, store.AnyOf("t", "free"), page, store.IntoExecutors)
				claimed <- answer{claims, err}
			}()
			eventually(t, "the claim waits", func() error {
				if waiting(t, s) == 0 {
					return errors.New("not yet")
				}
				return nil
			})

			// The key is paused for a short time. Pause waits for the claim.
			paused := make(chan error, 1)
			go func() {
				_, err := s.Pause(t.Context(), anna, store.PauseFor(store.Subject{Key: "x"}, 0))
				paused <- err
			}()
			var pause store.Gate
			eventually(t, "the pause is stored", func() error {
				gates, err := s.Gates(t.Context())
				if err == nil && len(gates) == 0 {
					return errors.New("not yet")
				}
				if err == nil {
					pause = gates[0]
				}
				return err
			})
			if err := s.Block(t.Context(), pause.ID, tickets[1:2]); err != nil {
				t.Fatal(err)
			}
			release(t, s, 1) // the permit goes to the third task
			claims, err := s.Claim(t.Context(), other, store.AnyOf("t"), tickets[2:], store.IntoExecutors)
			if err != nil || claims[0].Verdict != store.Claimed {
				t.Fatalf("the claim of the third task: %+v, %v", claims, err)
			}
			if _, err := s.Resume(t.Context(), anna, store.Subject{Key: "x"}); err != nil {
				t.Fatal(err)
			}
			release(t, s, 1)

			if err := lock.Rollback(); err != nil {
				t.Fatal(err)
			}
			got := <-claimed
			if got.err != nil || got.claims[0].Verdict != store.Claimed || got.claims[1].Verdict != store.Blocked || got.claims[1].Gate != limit.ID {
				t.Errorf("the claim that waited: %+v, %v; want the second task blocked at the limit", got.claims, got.err)
			}
			if err := <-paused; err != nil {
				t.Error("pause:", err)
			}
		})
	}
}

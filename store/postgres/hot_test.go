package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// Claims and successes must be HOT updates, also of tasks with tags. An index on a column that they write would prevent
// that without an error.
func TestClaimAndCompleteAreHot(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	const batches, size = 4, 250
	tagged := make([]holdfast.NewTask, size)
	for i := range tagged {
		tagged[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3, Tags: []string{"ada", fmt.Sprint("order:", i)}}
	}
	for batch := range batches {
		tickets := insert(t, s, size)
		if batch%2 == 1 {
			inserted, err := s.Insert(t.Context(), tagged, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			tickets = inserted.Entries[0].Tickets
		}
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		moves := make([]holdfast.Transition, len(claims))
		for i, claim := range claims {
			moves[i], err = holdfast.Settle(*claim.Task, holdfast.Returned(nil), claim.Now, holdfast.DefaultPolicy())
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Apply(t.Context(), moves); err != nil {
			t.Fatal(err)
		}
	}
	// The server's processes report their statistics when they end.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var updates, hot int
	eventually(t, "all updates are counted", func() error {
		err := pgtest.Admin(t).QueryRow("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = $1 and relname = 'tasks'", s.Schema()).Scan(&updates, &hot)
		if err == nil && updates < 2*batches*size {
			err = errors.New("not yet")
		}
		return err
	})
	// A page has space for three versions of each row, even if old transactions keep dead versions. With a wrong index
	// no update would be HOT.
	if hot < updates*95/100 {
		t.Errorf("%d of %d updates are HOT, want 95%%", hot, updates)
	}
}

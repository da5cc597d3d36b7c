package postgres_test

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// Claims and successes are HOT updates: an index that mentions one of the columns they write would
// end that silently.
func TestClaimAndCompleteAreHot(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	run := openRun(t, s)
	const batches, size = 4, 250
	for range batches {
		claims, err := s.Claim(t.Context(), run, store.AnyOf("t"), insert(t, s, size), store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		moves := make([]holdfast.Transition, len(claims))
		for i, claim := range claims {
			moves[i], err = holdfast.Settle(claim.Task, holdfast.Returned(nil), claim.Now, holdfast.DefaultPolicy())
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Apply(t.Context(), moves); err != nil {
			t.Fatal(err)
		}
	}
	// Backends hand in what they have counted when they end.
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
	// A page has room for all three versions of its rows, whatever other transactions hold back. With a wrong index
	// none would be HOT.
	if hot < updates*95/100 {
		t.Errorf("%d of %d updates are HOT", hot, updates)
	}
}

package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// The store uses the direct URL for everything that needs a session: presence locks, the watcher lock, and renewals.
func TestPresenceUsesTheDirectURL(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	named := func(application string) string {
		u := parse(t, address)
		query := u.Query()
		query.Set("application_name", application)
		u.RawQuery = query.Encode()
		return u.String()
	}
	s := pgtest.Connect(t, postgres.Options{URL: named(name), DirectURL: named(name + "-direct"), Schema: name})
	worker := registerWorker(t, s)
	acquire(t, s, worker)
	_, release, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Present: true, OwnSession: true}); err != nil {
		t.Fatal(err)
	}
	var got []string
	rows, err := pgtest.Admin(t).Query(`select a.application_name from pg_locks l join pg_stat_activity a using (pid)
		where l.locktype = 'advisory' and l.granted and starts_with(a.application_name, $1)`, name)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var application string
		if err := rows.Scan(&application); err != nil {
			t.Fatal(err)
		}
		got = append(got, application)
	}
	direct := name + "-direct"
	if want := []string{direct, direct, direct}; rows.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("sessions with advisory locks are of %q, want %q: %v", got, want, rows.Err())
	}
}

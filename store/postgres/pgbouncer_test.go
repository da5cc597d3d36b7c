package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The tested versions of PgBouncer. The installed version of Debian 12 does not track prepared statements; that of
// Debian 13 does.
const (
	untracked = ""
	tracked   = "tracked"
)

// bouncer starts a PgBouncer in front of the server target. It returns the URL of the PgBouncer, and a function that
// calls scripts/private-pgbouncer for it.
func bouncer(t *testing.T, target, version, mode, conf string) (address string, script func(args ...string) string) {
	t.Helper()
	slow.Skip(t)
	settings := []string{"PGBOUNCER_TARGET=" + target, "PGBOUNCER_MODE=" + mode, "PGBOUNCER_CONF=" + conf}
	switch {
	case version == untracked:
		settings = append(settings, "PGBOUNCER_ROOT=")
	case os.Getenv("PGBOUNCER_ROOT") == "":
		root, err := filepath.Abs("../../.servers/pgbouncer-root")
		if err != nil {
			t.Fatal(err)
		}
		settings = append(settings, "PGBOUNCER_ROOT="+root)
	}
	address, script, installed := private(t, "private-pgbouncer", settings...)
	if !installed {
		t.Skip("PgBouncer is not installed, so there is no private one")
	}
	return address, script
}

// useStore inserts and claims tasks in several goroutines at once.
func useStore(t *testing.T, s *postgres.Store) {
	t.Helper()
	worker := registerWorker(t, s)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				inserted, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}, {Type: "t", Queue: "queue"}}, 0)
				if err != nil {
					t.Errorf("insert: %v", err)
					return
				}
				tickets := []message.Ticket{{Task: inserted.Tasks[0].ID, Attempt: 1}, {Task: inserted.Tasks[1].ID, Attempt: 1}}
				claims, err := s.Claim(t.Context(), worker, []store.Wanted{{Type: "t"}}, tickets, store.IntoExecutors)
				if err != nil || claims[0].Verdict != store.Claimed {
					t.Errorf("claim: %+v, %v", claims, err)
					return
				}
			}
		})
	}
	group.Wait()
	renewPresent(t, s, worker, false)
}

func TestPoolersThatMixStatementsAreRefused(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{"", "server_round_robin = 1", "default_pool_size = 1"} {
		address, script := bouncer(t, pgtest.URL(t), untracked, "transaction", conf)
		t.Logf("PgBouncer %s, %q", script("version"), conf)
		if conf != "default_pool_size = 1" { // several sessions, in any order
			fill(t, address)
		}
		for range 3 {
			for _, direct := range []string{"", pgtest.URL(t)} {
				s, err := postgres.Open(t.Context(), postgres.Options{URL: address, DirectURL: direct})
				if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(holdfast.HintOf(err).Arg, "docs/poolers.md") {
					t.Errorf("%q: Open returned %v, want an ErrInvalid", conf, err)
				}
				if err == nil {
					_ = s.Close()
				}
			}
		}
	}
}

// fill makes the pooler open several sessions.
func fill(t *testing.T, address string) {
	t.Helper()
	db := openDB(t, address)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if _, err := db.Exec("select pg_sleep(0.2)"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestPoolersInSessionMode(t *testing.T) {
	t.Parallel()
	address, _ := bouncer(t, pgtest.URL(t), untracked, "session", "")
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: pgtest.Name(t)})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	useStore(t, s)
	_, release := acquire(t, s, registerWorker(t, s))
	release()
	if !s.KeepsSessions() || s.Ready(t.Context()) != nil {
		t.Errorf("KeepsSessions: %t, Ready: %v", s.KeepsSessions(), s.Ready(t.Context()))
	}
}

func TestPoolersThatTrackStatements(t *testing.T) {
	t.Parallel()
	address, script := bouncer(t, pgtest.URL(t), tracked, "transaction", "")
	t.Logf("PgBouncer %s", script("version"))
	name := pgtest.Name(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	useStore(t, s)
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	worker := registerWorker(t, s)
	if _, _, err := s.Acquire(t.Context(), worker); s.KeepsSessions() || !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("KeepsSessions: %t; Acquire: %v", s.KeepsSessions(), err)
	}
	if c := checkNamed(t, s, "store pooler"); c.Severity != doctor.Warning || c.Remedy.Kind != holdfast.HintSessionSettings || !strings.Contains(c.Detail, "enable_seqscan") {
		t.Errorf("%+v", c)
	}
	if c := checkNamed(t, s, "store presence"); c.Severity != doctor.Warning || c.Remedy.Kind != holdfast.HintDirectURL {
		t.Errorf("%+v", c)
	}

	// A direct URL provides sessions for presence locks.
	both := pgtest.Connect(t, postgres.Options{URL: address, DirectURL: pgtest.URL(t), Schema: name})
	useStore(t, both)
	gone, release := acquire(t, both, worker)
	renewPresent(t, both, worker, true)
	checkMissing(t, both, "with a direct URL")
	checkPresent(t, "with a direct URL", gone)
	release()
	if c := checkNamed(t, both, "store presence"); c.Severity != doctor.OK {
		t.Errorf("%+v", c)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: address, DirectURL: address}); !errors.Is(err, holdfast.ErrInvalid) || holdfast.HintOf(err).Kind != holdfast.HintDirectURL {
		t.Errorf("a direct URL through the pooler: %v", err)
	}
}

// If the mode of a pooler changes while a process runs, the store is not ready until the mode is changed back.
func TestAPoolerThatChangesItsMode(t *testing.T) {
	t.Parallel()
	address, script := bouncer(t, pgtest.URL(t), untracked, "session", "server_lifetime = 1")
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: pgtest.Name(t)})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	useStore(t, s)
	disturb := func() {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, _ = s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}, {Type: "t", Queue: "queue"}}, 0)
			})
		}
		group.Wait()
	}
	script("mode", "transaction")
	eventually(t, "the store is not ready", func() error {
		disturb()
		if err := s.Ready(t.Context()); err == nil || !strings.Contains(holdfast.HintOf(err).Arg, "docs/poolers.md") {
			return errors.New("ready")
		}
		return nil
	})
	script("mode", "session")
	eventually(t, "the store is ready again", func() error { return s.Ready(t.Context()) })
}

// If a pooler does not keep settings, the doctor advises to set them for the role.
func TestPoolersKeepTheSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	slow.Skip(t)
	role, target := newRole(t)
	address, script := bouncer(t, target, tracked, "transaction", "")
	_, err := postgres.Open(t.Context(), postgres.Options{URL: address + "&statement_timeout=5000"})
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "sets statement_timeout") {
		t.Errorf("a URL with a setting that the pooler does not keep: %v", err)
	}
	s := pgtest.Connect(t, postgres.Options{URL: address, DirectURL: target})
	c := checkNamed(t, s, "store pooler")
	_, lacks, ok := strings.Cut(c.Detail, "the sessions lack ")
	if !ok || c.Remedy != (holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: `"` + role + `"`}) {
		t.Fatalf("%+v", c)
	}
	for _, setting := range strings.Split(lacks, ", ") {
		execute(t, "alter role "+role+" set "+setting)
	}
	_ = s.Close() // the pooler waits for its clients
	script("down")
	script("up")
	s = pgtest.Connect(t, postgres.Options{URL: script("url"), DirectURL: target})
	if c := checkNamed(t, s, "store pooler"); c.Severity != doctor.OK {
		t.Errorf("%+v", c)
	}
}

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
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// Debian's PgBouncer does not track prepared statements; that of Debian 13 does.
const (
	untracked = ""
	tracked   = "tracked"
)

// bouncer starts a PgBouncer before a server. It returns the URL that leads through it, and how to call
// scripts/private-pgbouncer for it.
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

// works has several callers insert, claim and finish tasks at once.
func works(t *testing.T, s *postgres.Store) {
	t.Helper()
	run := openRun(t, s)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				inserted, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Lane: "lane"}, {Type: "t", Lane: "lane"}}, 0)
				if err != nil {
					t.Errorf("insert: %v", err)
					return
				}
				tickets := []message.Ticket{{Task: inserted.Tasks[0].ID, Attempt: 1}, {Task: inserted.Tasks[1].ID, Attempt: 1}}
				claims, err := s.Claim(t.Context(), run, []store.Wanted{{Type: "t"}}, tickets, store.IntoExecutors)
				if err != nil || claims[0].Verdict != store.Claimed {
					t.Errorf("claim: %+v, %v", claims, err)
					return
				}
			}
		})
	}
	group.Wait()
	renewShown(t, s, run, false)
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
					t.Errorf("%q: opened with %v", conf, err)
				}
				if err == nil {
					_ = s.Close()
				}
			}
		}
	}
}

// fill has the pooler open several sessions of the server.
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
	works(t, s)
	_, release := show(t, s, openRun(t, s))
	release()
	if !s.KeepsSessions() || s.Ready(t.Context()) != nil {
		t.Errorf("keeps sessions: %t, ready: %v", s.KeepsSessions(), s.Ready(t.Context()))
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
	works(t, s)
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	run := openRun(t, s)
	if _, _, err := s.Show(t.Context(), run); s.KeepsSessions() || !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("keeps sessions: %t; show: %v", s.KeepsSessions(), err)
	}
	if f := finding(t, s, "store pooler"); f.Severity != doctor.Warning || f.Remedy.Kind != holdfast.HintSessionSettings || !strings.Contains(f.Detail, "enable_seqscan") {
		t.Errorf("%+v", f)
	}
	if f := finding(t, s, "store presence"); f.Severity != doctor.Warning || f.Remedy.Kind != holdfast.HintDirectURL {
		t.Errorf("%+v", f)
	}

	// Past the pooler there are sessions for the signs.
	both := pgtest.Connect(t, postgres.Options{URL: address, DirectURL: pgtest.URL(t), Schema: name})
	works(t, both)
	gone, release := show(t, both, run)
	renewShown(t, both, run, true)
	absentAre(t, both, "shown past the pooler")
	stays(t, "shown past the pooler", gone)
	release()
	if f := finding(t, both, "store presence"); f.Severity != doctor.OK {
		t.Errorf("%+v", f)
	}
	if _, err := postgres.Open(t.Context(), postgres.Options{URL: address, DirectURL: address}); !errors.Is(err, holdfast.ErrInvalid) || holdfast.HintOf(err).Kind != holdfast.HintDirectURL {
		t.Errorf("a direct URL through the pooler: %v", err)
	}
}

// A pooler that is switched while a process runs makes it unready, and ready again when it is switched back.
func TestAPoolerThatChangesItsMode(t *testing.T) {
	t.Parallel()
	address, script := bouncer(t, pgtest.URL(t), untracked, "session", "server_lifetime = 1")
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: pgtest.Name(t)})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	works(t, s)
	disturb := func() {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, _ = s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Lane: "lane"}, {Type: "t", Lane: "lane"}}, 0)
			})
		}
		group.Wait()
	}
	script("mode", "transaction")
	eventually(t, "it is not ready", func() error {
		disturb()
		if err := s.Ready(t.Context()); err == nil || !strings.Contains(holdfast.HintOf(err).Arg, "docs/poolers.md") {
			return errors.New("ready")
		}
		return nil
	})
	script("mode", "session")
	eventually(t, "it is ready again", func() error { return s.Ready(t.Context()) })
}

// What the doctor advises about settings that a pooler does not keep: they become those of the role.
func TestPoolersKeepTheSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	slow.Skip(t)
	role, target := newRole(t)
	address, script := bouncer(t, target, tracked, "transaction", "")
	_, err := postgres.Open(t.Context(), postgres.Options{URL: address + "&statement_timeout=5000"})
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "sets statement_timeout") {
		t.Errorf("a setting that cannot be kept: %v", err)
	}
	s := pgtest.Connect(t, postgres.Options{URL: address, DirectURL: target})
	f := finding(t, s, "store pooler")
	_, lacks, ok := strings.Cut(f.Detail, "the sessions lack ")
	if !ok || f.Remedy != (holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: `"` + role + `"`}) {
		t.Fatalf("%+v", f)
	}
	for _, setting := range strings.Split(lacks, ", ") {
		execute(t, "alter role "+role+" set "+setting)
	}
	_ = s.Close() // the pooler waits for its clients
	script("down")
	script("up")
	s = pgtest.Connect(t, postgres.Options{URL: script("url"), DirectURL: target})
	if f := finding(t, s, "store pooler"); f.Severity != doctor.OK {
		t.Errorf("%+v", f)
	}
}

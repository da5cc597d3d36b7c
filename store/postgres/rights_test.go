package postgres_test

import (
	"crypto/rand"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// newRole creates a role that may log in. It returns the name of the role, and the URL for logging in.
func newRole(t *testing.T) (name, address string) {
	t.Helper()
	name = "test_" + strings.ToLower(rand.Text()[:16])
	t.Cleanup(func() { execute(t, "drop owned by "+name, "drop role "+name) })
	execute(t, "create role "+name+" login password 'secret'")
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "secret")
	return name, u.String()
}

// execute executes statements as the user of DATABASE_URL.
func execute(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := pgtest.Admin(t).Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func rightsOf(t *testing.T, s *postgres.Store) doctor.Check {
	t.Helper()
	return checkNamed(t, s, "store rights")
}

// checkNamed returns the doctor's check with the name.
func checkNamed(t *testing.T, s *postgres.Store, check string) doctor.Check {
	t.Helper()
	checks, err := s.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(checks, func(c doctor.Check) bool { return c.Name == check })
	if i < 0 {
		t.Fatalf("no check is named %s: %+v", check, checks)
	}
	return checks[i]
}

// The setup of docs/upgrade.md: one role owns the tables and migrates, and another role may only read and write.
func TestARoleThatOnlyReadsAndWrites(t *testing.T) {
	t.Parallel()
	owner, ownerURL := newRole(t)
	app, appURL := newRole(t)
	name := pgtest.Name(t)
	works := pgtest.Connect(t, postgres.Options{URL: appURL, Schema: name})
	if c := rightsOf(t, works); c.Severity != doctor.Skipped {
		t.Errorf("without a schema: %+v", c)
	}
	execute(t, "create schema "+name+" authorization "+owner)
	migrates := pgtest.Connect(t, postgres.Options{URL: ownerURL, Schema: name})
	if applied, err := migrates.MigrateUp(t.Context()); err != nil || len(applied) == 0 {
		t.Fatalf("migrate as the owner of the schema: %d applied, %v", len(applied), err)
	}

	// The doctor names the missing rights, and its advice is sufficient.
	for range 3 {
		c := rightsOf(t, works)
		if c.Severity == doctor.OK {
			break
		}
		if c.Remedy.Kind != holdfast.HintGrant || !strings.Contains(c.Detail, app) {
			t.Fatalf("%+v", c)
		}
		t.Log(c.Detail)
		execute(t, c.Remedy.Arg)
	}
	if c := rightsOf(t, works); c.Severity != doctor.OK {
		t.Errorf("after the grants: %+v", c)
	}
	execute(t, "revoke insert on "+name+".tasks from "+app)
	if c := rightsOf(t, works); c.Severity != doctor.Failed || !strings.HasSuffix(c.Detail, "may not read and write tasks") {
		t.Errorf("without one right: %+v", c)
	}
	task := []holdfast.NewTask{{Type: "t", Queue: "queue"}}
	if _, err := works.Insert(t.Context(), task, 0); holdfast.HintOf(err).Kind != holdfast.HintFindGrant {
		t.Errorf("insert without the right: %v", err)
	}
	execute(t, "grant insert on "+name+".tasks to "+app)

	// If all migrations are applied, MigrateUp needs only the right to read.
	if applied, err := works.MigrateUp(t.Context()); err != nil || len(applied) > 0 {
		t.Errorf("migrate a complete schema: %d applied, %v", len(applied), err)
	}
	worker, err := works.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := works.Insert(t.Context(), task, 0); err != nil {
		t.Error(err)
	}
	if _, err := works.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour}); err != nil {
		t.Error(err)
	}

	// Only the owner may apply a missing migration. Default privileges apply to the tables that it creates.
	for len(status(t, migrates)) > 0 {
		if _, err := migrates.MigrateDown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := works.MigrateUp(t.Context()); !strings.Contains(holdfast.HintOf(err).Arg, "migrate as the role that owns the schema") {
		t.Errorf("migrate without the right: %v", err)
	}
	execute(t, "alter default privileges for role "+owner+" in schema "+name+" grant select, insert, update, delete on tables to "+app,
		"alter default privileges for role "+owner+" in schema "+name+" grant usage, update on sequences to "+app)
	if _, err := migrates.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := rightsOf(t, works); c.Severity != doctor.OK {
		t.Errorf("with default privileges: %+v", c)
	}
}

// status returns the applied migrations.
func status(t *testing.T, s *postgres.Store) []store.Migration {
	t.Helper()
	list, err := s.MigrationStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(m store.Migration) bool { return !m.Applied })
}

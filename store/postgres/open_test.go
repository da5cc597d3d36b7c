package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String() // no server listens there after Close
	_ = listener.Close()
	_, err = postgres.Open(t.Context(), postgres.Options{URL: "postgres://user:hunter2@" + address + "/jobs?sslmode=disable"})
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Fatalf("got %v, want an ErrUnavailable", err)
	}
	for _, want := range []string{address, "jobs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%q shows the password", err)
	}
	if hint := holdfast.HintOf(err); hint.Kind != holdfast.HintReachDatabase {
		t.Errorf("the hint is %+v", hint)
	}
}

// With a list of servers, Open connects to the first server that accepts writes.
func TestOpenOneOfSeveralServers(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()
	reached := u.Host
	u.Host = closed.Addr().String() + "," + reached
	s, err := postgres.Open(t.Context(), postgres.Options{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Now(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	u.Host = closed.Addr().String() + "," + closed.Addr().String()
	_, err = postgres.Open(t.Context(), postgres.Options{URL: u.String()})
	if !errors.Is(err, holdfast.ErrUnavailable) || strings.Count(err.Error(), closed.Addr().String()) < 2 {
		t.Errorf("without any server: %v", err)
	}
}

// withApplication returns the URL of the server with an application name.
func withApplication(t *testing.T, name string) string {
	t.Helper()
	u := parse(t, pgtest.URL(t))
	query := u.Query()
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// A new session costs the server far more than a statement. So the connection that Open has tested executes the first
// statement, and has the settings of the store.
func TestOpenKeepsItsConnection(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	address := withApplication(t, name)
	sessions := func() (pids []int64) {
		t.Helper()
		err := pgtest.Admin(t).QueryRow("select array_agg(pid) from pg_stat_activity where application_name = $1", name).Scan((*pq.Int64Array)(&pids))
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	opened := sessions()
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var pid int64
	var timeout string
	err = conn.QueryRowContext(t.Context(), "select pg_backend_pid(), current_setting('statement_timeout')").Scan(&pid, &timeout)
	if err != nil || timeout != "30s" || !slices.Equal(opened, []int64{pid}) {
		t.Errorf("session %d has a statement_timeout of %s, and Open has left the sessions %v: %v", pid, timeout, opened, err)
	}
	_ = conn.Close()
	unused := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	for _, store := range []*postgres.Store{s, unused} {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "no session is left", func() error {
		if left := sessions(); len(left) > 0 {
			return fmt.Errorf("the sessions %v", left)
		}
		return nil
	})
}

// The server ends the session after Open. The first statement uses another one.
func TestOpenSurvivesTheEndOfItsConnection(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	address := withApplication(t, name)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	var ended int
	query := "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity where application_name = $1"
	if err := pgtest.Admin(t).QueryRow(query, name).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("%d sessions ended, %v", ended, err)
	}
	if _, err := s.Now(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.MigrationStatus(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenInvalid(t *testing.T) {
	t.Parallel()
	const url = "postgres://user:hunter2@127.0.0.1:1/jobs?sslmode=disable"
	for name, o := range map[string]postgres.Options{
		"no URL":           {},
		"a broken URL":     {URL: "postgres://user:hunter2@127.0.0.1:port/jobs"},
		"a control byte":   {URL: "postgres://user:hunter2@127.0.0.1/jobs\x7f"},
		"an upper case":    {URL: url, Schema: "Jobs"},
		"an injection":     {URL: url, Schema: `a"; drop table x`},
		"a system schema":  {URL: url, Schema: "pg_jobs"},
		"a long schema":    {URL: url, Schema: strings.Repeat("a", 64)},
		"a negative limit": {URL: url, MaxConns: -1},
	} {
		_, err := postgres.Open(t.Context(), o)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", name, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q shows the password", name, err)
		}
	}
}

// Parameters of libpq without a counterpart are ignored with a reason, in both forms of an address. Parameters of other
// drivers are refused by name.
func TestOpenParameters(t *testing.T) {
	t.Parallel()
	u := parse(t, pgtest.URL(t))
	open := func(address string, log logrus.FieldLogger) error {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: address, Log: log})
		if err == nil {
			_, err = s.Now(t.Context())
			_ = s.Close()
		}
		return err
	}
	log, logged := test.NewNullLogger()
	u.RawQuery += "&channel_binding=prefer&gssencmode=disable&keepalives=1&keepalives_idle=5&sslcrl=x&require_auth=scram-sha-256&work_mem=8MB"
	if err := open(u.String(), log); err != nil {
		t.Error(err)
	}
	ignored := make(map[any]bool)
	for _, entry := range logged.AllEntries() {
		if entry.Data["reason"] != "" {
			ignored[entry.Data["parameter"]] = true
		}
	}
	for _, name := range []string{"channel_binding", "gssencmode", "keepalives", "keepalives_idle", "sslcrl", "require_auth"} {
		if !ignored[name] {
			t.Errorf("the log does not say why %s has no effect", name)
		}
	}
	base := parse(t, pgtest.URL(t))
	list := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", base.Hostname(), base.Port(), base.User.Username(), strings.TrimPrefix(base.Path, "/"))
	if base.User.Username() == "postgres" { // the server of the tests needs no password
		if err := open(list+" gssencmode=disable", nil); err != nil {
			t.Error(err)
		}
	}
	for address, want := range map[string]string{
		base.String() + "&pool_max_conns=5":        "parameter pool_max_conns",
		base.String() + "&schema=app":              "parameter schema",
		base.String() + "&statement_timeout=never": "statement_timeout",
		base.String() + "&role=no_such_role":       "no_such_role",
		list + " pgbouncer=true":                   "parameter pgbouncer",
		list + " replication=database":             "parameter replication",
	} {
		if err := open(address, nil); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestOpenWrongDatabase(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Options{URL: withDatabase(t, pgtest.URL(t), "no_such_database")})
	if err == nil || errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "no_such_database") {
		t.Errorf("got %v, want an error that names the database and is no ErrUnavailable", err)
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Workers(context.Background(), true); err == nil {
		t.Error("a call of a closed store succeeded")
	}
}

// A build before the first release has made the tables. This build neither uses them nor migrates them.
func TestFormerNamesAreRefused(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := pgtest.Admin(t).Exec("create table " + name + ".lanes (name text)"); err != nil {
		t.Fatal(err)
	}
	_, upErr := s.MigrateUp(t.Context())
	_, downErr := s.MigrateDown(t.Context())
	_, statusErr := s.MigrationStatus(t.Context())
	for operation, err := range map[string]error{"check": s.CheckSchema(t.Context()), "up": upErr, "down": downErr, "status": statusErr} {
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "before the first release") || holdfast.HintOf(err).Kind != holdfast.HintAdvice {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// If the schema is several versions ahead, this build must neither use it nor migrate it.
func TestSchemaAhead(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := pgtest.Admin(t).Exec("insert into " + name + ".migrations (version_id, is_applied) values (999, true)"); err != nil {
		t.Fatal(err)
	}
	_, upErr := s.MigrateUp(t.Context())
	_, downErr := s.MigrateDown(t.Context())
	for operation, err := range map[string]error{"check": s.CheckSchema(t.Context()), "up": upErr, "down": downErr} {
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 999") || holdfast.HintOf(err).Kind != holdfast.HintUpgrade {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// If the user may not create the schema, the hint is the statement that permits it.
func TestSchemaNotPermitted(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("role", "pg_monitor") // a role that exists on every server and owns nothing
	u.RawQuery = query.Encode()
	_, err = pgtest.Connect(t, postgres.Options{URL: u.String(), Schema: pgtest.Name(t)}).MigrateUp(t.Context())
	hint := holdfast.HintOf(err).Arg
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(hint, "grant create on database ") || !strings.HasSuffix(hint, " to pg_monitor") {
		t.Errorf("got %v, %q", err, hint)
	}
}

func TestDropSchemaLeavesNothingAndNoOtherSchema(t *testing.T) {
	t.Parallel()
	s, other := pgtest.Open(t), pgtest.Open(t)
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pgtest.Admin(t).Exec("create table " + s.Schema() + ".mine (id int)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.DropSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	if err := pgtest.Admin(t).QueryRow("select count(*) from pg_namespace where nspname = $1", s.Schema()).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d schemas are left, %v", left, err)
	}
	if err := other.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}}, 0); err != nil {
		t.Errorf("insert into the recreated schema: %v", err)
	}
}

// Before the first migration there is no schema.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	s := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: pgtest.Name(t)})
	err := s.CheckSchema(t.Context())
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 0") || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("check: %v", err)
	}
	if _, err := s.QueueNames(t.Context()); !errors.Is(err, store.ErrSchema) || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("list queues: %v", err)
	}
	if status, err := s.MigrationStatus(t.Context()); err != nil || len(status) == 0 || status[0].Applied {
		t.Errorf("the status is %+v, %v", status, err)
	}
}

package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// open opens a DB that logs to log, or nowhere if log is nil.
func open(ctx context.Context, address string, log logrus.FieldLogger) (*pgclient.DB, error) {
	if log == nil {
		log = &logrus.Logger{Out: io.Discard, Formatter: new(logrus.TextFormatter), Level: logrus.PanicLevel}
	}
	return pgclient.Open(ctx, pgclient.Options{URL: address, Schema: "holdfast", MaxConns: 2, Log: log})
}

// connect opens a DB until the end of the test.
func connect(t *testing.T, address string) *pgclient.DB {
	t.Helper()
	d, err := open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Skip("DATABASE_URL is not a URL: ", err)
	}
	return u
}

// eventually waits until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(slow.Patience())
	defer tick.Stop()
	for err := f(); err != nil; err = f() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("timeout: %s: %v", what, err)
		}
	}
}

func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String() // no server listens there after Close
	_ = listener.Close()
	_, err = open(t.Context(), "postgres://user:hunter2@"+address+"/jobs?sslmode=disable", nil)
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
	d, err := open(t.Context(), u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Main.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	u.Host = closed.Addr().String() + "," + closed.Addr().String()
	_, err = open(t.Context(), u.String(), nil)
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

// For the server, a new session costs far more than a statement. So the connection that Open has tested executes the
// first statement, and has the standard parameters.
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
	d := connect(t, address)
	opened := sessions()
	conn, err := d.Main.Conn(t.Context())
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
	unused := connect(t, address)
	for _, opened := range []*pgclient.DB{d, unused} {
		if err := opened.Close(); err != nil {
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

// The server ends the session of Open. The first statement uses another session.
func TestOpenSurvivesTheEndOfItsConnection(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(t)
	address := withApplication(t, name)
	d := connect(t, address)
	var ended int
	query := "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity where application_name = $1"
	if err := pgtest.Admin(t).QueryRow(query, name).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("%d sessions ended, %v", ended, err)
	}
	if err := d.Main.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Unlimited.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
}

// An error about a wrong URL never shows the password.
func TestOpenInvalid(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"no URL":         "",
		"a broken URL":   "postgres://user:hunter2@127.0.0.1:port/jobs",
		"a control byte": "postgres://user:hunter2@127.0.0.1/jobs\x7f",
	} {
		_, err := open(t.Context(), address, nil)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", name, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q shows the password", name, err)
		}
	}
}

// If libpq has a parameter that this driver cannot support, Open ignores it and logs a reason, in both forms of an
// address. Open refuses parameters of other drivers by name.
func TestOpenParameters(t *testing.T) {
	t.Parallel()
	u := parse(t, pgtest.URL(t))
	use := func(address string, log logrus.FieldLogger) error {
		d, err := open(t.Context(), address, log)
		if err == nil {
			err = d.Main.PingContext(t.Context())
			_ = d.Close()
		}
		return err
	}
	log, logged := test.NewNullLogger()
	u.RawQuery += "&channel_binding=prefer&gssencmode=disable&keepalives=1&keepalives_idle=5&sslcrl=x&require_auth=scram-sha-256&work_mem=8MB"
	if err := use(u.String(), log); err != nil {
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
		if err := use(list+" gssencmode=disable", nil); err != nil {
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
		if err := use(address, nil); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestOpenWrongDatabase(t *testing.T) {
	t.Parallel()
	u := parse(t, pgtest.URL(t))
	u.Path = "/no_such_database"
	_, err := open(t.Context(), u.String(), nil)
	if err == nil || errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "no_such_database") {
		t.Errorf("got %v, want an error that names the database and is no ErrUnavailable", err)
	}
}

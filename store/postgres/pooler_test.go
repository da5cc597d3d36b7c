package postgres_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// openDB returns a connection pool without settings.
func openDB(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// parameterDropper is a proxy that drops the startup parameters of a connection, like a pooler with
// ignore_startup_parameters.
type parameterDropper struct {
	mu   sync.Mutex
	seen map[string]bool // the startup parameters of all connections
}

// newParameterDropper returns a proxy in front of the server, and the URL of the proxy.
func newParameterDropper(t *testing.T, address string) (d *parameterDropper, through string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d = &parameterDropper{seen: map[string]bool{}}
	var group sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { d.serve(client, server) })
		}
	})
	u.Host = listener.Addr().String()
	return d, u.String()
}

func (d *parameterDropper) serve(client net.Conn, server string) {
	defer client.Close()
	behind, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer behind.Close()
	var length uint32
	if err := binary.Read(client, binary.BigEndian, &length); err != nil {
		return
	}
	body := make([]byte, length-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return
	}
	kept := body[:4] // the version of the protocol
	if binary.BigEndian.Uint16(body) == 3 {
		words := bytes.Split(bytes.TrimRight(body[4:], "\x00"), []byte{0})
		kept = slices.Clone(kept)
		for i := 0; i+1 < len(words); i += 2 {
			name := string(words[i])
			d.mu.Lock()
			d.seen[name] = true
			d.mu.Unlock()
			if name == "user" || name == "database" {
				kept = append(append(append(append(kept, words[i]...), 0), words[i+1]...), 0)
			}
		}
		kept = append(kept, 0)
	} else {
		kept = body // a cancel request
	}
	_, err = behind.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(kept)+4)), kept...))
	if err != nil {
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { _, _ = io.Copy(client, behind); _ = client.Close() })
	_, _ = io.Copy(behind, client)
	_ = behind.Close()
}

// If a pooler drops startup parameters, the tables are still in the right schema, and the time limits still apply.
func TestNothingReliesOnStartupParameters(t *testing.T) {
	t.Parallel()
	role, direct := newRole(t)
	name, astray := pgtest.Name(t), role+"_astray" // the schema of tables that are created without a schema name
	execute(t, "grant create on database "+pq.QuoteIdentifier(strings.TrimPrefix(parse(t, direct).Path, "/"))+" to "+role,
		"create schema "+astray+" authorization "+role, "alter role "+role+" set search_path = "+astray)
	d, address := newParameterDropper(t, direct)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	var strays int
	err := pgtest.Admin(t).QueryRow("select count(*) from pg_tables where schemaname = $1", astray).Scan(&strays)
	if err != nil || strays > 0 {
		t.Errorf("%d tables are in another schema, %v", strays, err)
	}
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, want := range map[string]string{"statement_timeout": "30s", "enable_seqscan": "off", "TimeZone": "UTC", "tcp_keepalives_idle": "10"} {
		var got string
		if err := conn.QueryRowContext(t.Context(), "show "+name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, not %q: %v", name, got, want, err)
		}
	}
	if c := checkNamed(t, s, "store pooler"); c.Severity != doctor.OK {
		t.Errorf("%+v", c)
	}
	if _, err := s.MigrateDown(t.Context()); err != nil {
		t.Error(err)
	}
	// These are the parameters of the protocol itself, which every pooler knows.
	d.mu.Lock()
	defer d.mu.Unlock()
	known := []string{"application_name", "client_encoding", "database", "datestyle", "user"}
	for _, name := range slices.Sorted(maps.Keys(d.seen)) {
		if !slices.Contains(known, name) {
			t.Errorf("a connection sends the startup parameter %s", name)
		}
	}
}
